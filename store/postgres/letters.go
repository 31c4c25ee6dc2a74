package postgres

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlAddLetter = `
INSERT INTO dead_letters (stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, due_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, now() + nullif($16::float8, 0) * interval '1 second')
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = now(), count = dead_letters.count + 1, code = excluded.code, reason = excluded.reason, version = excluded.version,
    payload = excluded.payload, headers = excluded.headers, position = excluded.position, state = 'open',
    due_at = now() + nullif(least($16::float8 * 2 ^ least(dead_letters.count, 32), $17), 0) * interval '1 second'
WHERE excluded.position > dead_letters.position`

	letterHead = `id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", headers, state, dedup_key, position`

	sqlPlanByParameters = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`

	// letterFilter takes what filterOf returns.
	letterFilter = ` FROM dead_letters
WHERE ($1 = '' OR stage = $1) AND ($2 = '' OR source = $2) AND ($3 = '' OR service = $3)
AND ($4 = '' OR entity = $4) AND ($5 = '' OR code = $5) AND ($6 = '' OR state = $6)`

	sqlListLetters   = `SELECT ` + letterHead + letterFilter + ` AND id > $7 ORDER BY id LIMIT $8`
	sqlNewestLetters = `SELECT ` + letterHead + letterFilter + ` AND id < $7 ORDER BY id DESC LIMIT $8`

	sqlGroupLetters = `
SELECT stage, source, service, code, max(reason), count(*) AS n, min(created_at), max(last_at) FROM (
  SELECT stage, source, service, code, reason, created_at, last_at` + letterFilter + ` LIMIT $7) AS few
GROUP BY stage, source, service, code ORDER BY n DESC, stage, source, service, code LIMIT $8`

	sqlDueLetters = `
SELECT ` + letterHead + ` FROM dead_letters
WHERE state = 'open' AND service = ANY($1::text[]) AND due_at <= now() AND id > $2
ORDER BY id LIMIT $3`

	sqlLetter       = `SELECT ` + letterHead + `, payload, original FROM dead_letters WHERE id = $1`
	sqlCountLetters = `
SELECT s.stage, few.n FROM unnest($1::text[]) AS s(stage)
CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM dead_letters d WHERE d.state = 'open' AND d.stage = s.stage LIMIT $2) AS one) AS few
WHERE few.n > 0`

	sqlCountLettersOf = `
SELECT count(*) FROM (SELECT FROM dead_letters WHERE state = 'open' AND source = $1 AND source <> '' LIMIT $2) AS few`

	sqlAddAudit = `INSERT INTO audit (actor, action, reason, entity, service, detail) VALUES ($1, $2, $3, $4, $5, $6::text::json)`
	sqlAudits   = `SELECT id, time, actor, action, reason, entity, service, detail FROM audit WHERE id > $1 ORDER BY id LIMIT $2`
)

const defaultLimit = 100

// queueLetters queues letters in the order that they came in: who adds the
// same ones adds them in the same order. Their texts come from broken records
// and must not be refused: what a text column cannot hold is replaced. Payload,
// headers and key are kept as bytes.
func queueLetters(b *pgx.Batch, letters []store.DeadLetter) {
	for _, l := range letters {
		b.Queue(sqlAddLetter, store.SanitizeText(string(l.Stage)), store.SanitizeText(l.Code), store.SanitizeText(l.Reason), store.SanitizeText(l.Source), store.SanitizeText(l.Service),
			store.SanitizeText(l.Entity), store.SanitizeText(l.EventID), int64(l.Version), store.SanitizeText(l.Topic), l.Part, l.Offset,
			notNil(l.Payload), l.Headers, []byte(l.DedupKey), int64(l.Position), l.Later.Seconds(), store.LaterMax.Seconds())
	}
}

func queueAudits(b *pgx.Batch, audits []store.Audit) {
	for _, a := range audits {
		var detail *string
		if len(a.Detail) > 0 {
			text := string(a.Detail)
			detail = &text
		}
		b.Queue(sqlAddAudit, store.SanitizeText(a.Actor), store.SanitizeText(a.Action), store.SanitizeText(a.Reason), store.SanitizeText(a.Entity), store.SanitizeText(a.Service), detail)
	}
}

// AddLetters implements store.DeadLetters.
func (s *Store) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	// A pipeline without BEGIN is one transaction.
	b := new(pgx.Batch)
	queueLetters(b, letters)
	return failed("add dead letters", s.pool.SendBatch(ctx, b).Close())
}

// ListLetters implements store.DeadLetters.
func (s *Store) ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	sql, after := sqlListLetters, f.AfterID
	if f.NewestFirst {
		sql, after = sqlNewestLetters, cmp.Or(f.AfterID, math.MaxInt64)
	}
	return filtered(ctx, s, "list dead letters", sql, filterOf(f, after, f.Limit), func(row pgx.CollectableRow) (store.DeadLetter, error) { return scanLetter(row) })
}

// filterOf returns the arguments of letterFilter, and more behind them.
func filterOf(f store.LetterFilter, more ...any) []any {
	return append([]any{string(f.Stage), f.Source, f.Service, f.Entity, f.Code, string(f.State)}, more...)
}

// GroupLetters implements store.DeadLetters.
func (s *Store) GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error) {
	return filtered(ctx, s, "group dead letters", sqlGroupLetters, filterOf(f, store.GroupedLetters, max(limit, 0)), func(row pgx.CollectableRow) (g store.LetterGroup, err error) {
		err = row.Scan(&g.Stage, &g.Source, &g.Service, &g.Code, &g.Reason, &g.Letters, &g.First, &g.Last)
		return g, err
	})
}

// filtered runs a statement with letterFilter. Most of the filter's parameters are
// empty, so which index serves depends on them: it is planned for what they are.
func filtered[T any](ctx context.Context, s *Store, what, sql string, args []any, scan pgx.RowToFunc[T]) ([]T, error) {
	b := new(pgx.Batch) // one transaction, and the setting is local to it
	b.Queue(sqlPlanByParameters)
	b.Queue(sql, args...)
	results := s.pool.SendBatch(ctx, b)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return nil, failed(what, err)
	}
	rows, err := results.Query()
	if err != nil {
		return nil, failed(what, err)
	}
	found, err := pgx.CollectRows(rows, scan)
	return found, failed(what, err)
}

// DueLetters implements store.DeadLetters.
func (s *Store) DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error) {
	return s.letters(ctx, "read due dead letters", sqlDueLetters, services, after, limit)
}

func (s *Store) letters(ctx context.Context, what, sql string, args ...any) ([]store.DeadLetter, error) {
	letters, err := list(ctx, s.pool, func(row pgx.Row) (store.DeadLetter, error) { return scanLetter(row) }, sql, args...)
	return letters, failed(what, err)
}

// Letter implements store.DeadLetters.
func (s *Store) Letter(ctx context.Context, id int64) (store.DeadLetter, error) {
	var payload, original []byte
	l, err := scanLetter(s.pool.QueryRow(ctx, sqlLetter, id), &payload, &original)
	if err != nil {
		return store.DeadLetter{}, failed("read dead letter", err)
	}
	l.Payload, l.Original = payload, original
	return l, nil
}

func scanLetter(row pgx.Row, more ...any) (store.DeadLetter, error) {
	var l store.DeadLetter
	var version, position int64
	var key []byte
	err := row.Scan(append([]any{&l.ID, &l.Created, &l.Last, &l.Count, &l.Stage, &l.Code, &l.Reason, &l.Source, &l.Service, &l.Entity, &l.EventID,
		&version, &l.Topic, &l.Part, &l.Offset, &l.Headers, &l.State, &key, &position}, more...)...)
	l.Version, l.Position, l.DedupKey = change.Version(version), change.Version(position), string(key)
	return l, err
}

// CountLetters implements store.DeadLetters.
func (s *Store) CountLetters(ctx context.Context) (map[store.Stage]int64, error) {
	counts := make(map[store.Stage]int64)
	var stage store.Stage
	var n int64
	if err := each(ctx, s.pool, []any{&stage, &n}, func() { counts[stage] = n }, sqlCountLetters, store.Stages, store.CountedLetters+1); err != nil {
		return nil, failed("count dead letters", err)
	}
	return counts, nil
}

// CountLettersOf implements store.DeadLetters.
func (s *Store) CountLettersOf(ctx context.Context, source string, most int64) (n int64, err error) {
	err = s.pool.QueryRow(ctx, sqlCountLettersOf, source, most).Scan(&n)
	return n, failed("count dead letters of a source", err)
}

// prunePage bounds one statement of Prune: however much there is, none takes so
// long that the server seems to be silent, and each that succeeded stays done.
const prunePage = 10_000

// The index by time says at once that there is nothing to do. A letter may die again
// meanwhile: its time is compared again on the row that is deleted.
const (
	sqlPruneLetters = `
DELETE FROM dead_letters WHERE last_at < $1 AND id = ANY(ARRAY(SELECT id FROM dead_letters WHERE last_at < $1 ORDER BY last_at LIMIT $2))`
	sqlPruneAudit = `DELETE FROM audit WHERE id = ANY(ARRAY(SELECT id FROM audit WHERE time < $1 ORDER BY time LIMIT $2))`
	sqlPruneJobs  = `DELETE FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM jobs WHERE state <> 'open' AND updated_at < $1 ORDER BY updated_at LIMIT $2))`
)

// Prune implements store.DeadLetters.
func (s *Store) Prune(ctx context.Context, letters, audit time.Time) (int, error) {
	a, err := s.pruned(ctx, sqlPruneLetters, letters)
	if err != nil {
		return a, err
	}
	b, err := s.pruned(ctx, sqlPruneAudit, audit)
	if err != nil {
		return a + b, err
	}
	_, err = s.pruned(ctx, sqlPruneJobs, audit)
	return a + b, err
}

// pruned deletes page by page and returns how many rows.
func (s *Store) pruned(ctx context.Context, statement string, before time.Time) (n int, err error) {
	for {
		tag, err := s.pool.Exec(ctx, statement, before, prunePage)
		n += int(tag.RowsAffected())
		if err != nil || tag.RowsAffected() < prunePage {
			return n, failed("prune", err)
		}
	}
}

// Audits implements store.Reader.
func (s *Store) Audits(ctx context.Context, afterID int64, limit int) ([]store.Audit, error) {
	audits, err := list(ctx, s.pool, func(row pgx.Row) (a store.Audit, err error) {
		err = row.Scan(&a.ID, &a.Time, &a.Actor, &a.Action, &a.Reason, &a.Entity, &a.Service, &a.Detail)
		return a, err
	}, sqlAudits, afterID, limit)
	return audits, failed("read audit", err)
}
