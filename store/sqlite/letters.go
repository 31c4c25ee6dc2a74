package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlAddLetter = `
INSERT INTO dead_letters (created_at, last_at, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", payload, headers, dedup_key, position, due_at)
VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?1 + nullif(?17, 0))
ON CONFLICT (dedup_key) DO UPDATE
SET last_at = excluded.last_at, count = count + 1, code = excluded.code, reason = excluded.reason, version = excluded.version,
    payload = excluded.payload, headers = excluded.headers, position = excluded.position, state = 'open',
    due_at = ?1 + nullif(min(?17 * (1.0 * (1 << min(count, 32))), ?18), 0)
WHERE excluded.position > position`

	letterHead = `id, created_at, last_at, count, stage, code, reason, source, service, entity, event_id, version, topic, part, "offset", headers, state, dedup_key, position`

	// letterFilter takes what filterOf returns.
	letterFilter = ` FROM dead_letters
WHERE (?1 = '' OR stage = ?1) AND (?2 = '' OR source = ?2) AND (?3 = '' OR service = ?3)
AND (?4 = '' OR entity = ?4) AND (?5 = '' OR code = ?5) AND (?6 = '' OR state = ?6)`

	sqlListLetters   = `SELECT ` + letterHead + letterFilter + ` AND id > ?7 ORDER BY id LIMIT ?8`
	sqlNewestLetters = `SELECT ` + letterHead + letterFilter + ` AND id < ?7 ORDER BY id DESC LIMIT ?8`

	sqlGroupLetters = `
SELECT stage, source, service, code, max(reason), count(*) AS n, min(created_at), max(last_at) FROM (
  SELECT stage, source, service, code, reason, created_at, last_at` + letterFilter + ` LIMIT ?7)
GROUP BY stage, source, service, code ORDER BY n DESC, stage, source, service, code LIMIT ?8`

	sqlDueLetters = `
SELECT ` + letterHead + ` FROM dead_letters
WHERE state = 'open' AND service IN (SELECT value FROM json_each(?1)) AND due_at <= ?2 AND id > ?3
ORDER BY id LIMIT ?4`

	sqlLetter = `SELECT ` + letterHead + `, payload, original, original IS NOT NULL FROM dead_letters WHERE id = ?`

	sqlAddAudit = `INSERT INTO audit (time, actor, action, reason, entity, service, detail) VALUES (?, ?, ?, ?, ?, ?, ?)`
	sqlAudits   = `SELECT id, time, actor, action, reason, entity, service, detail FROM audit WHERE id > ? ORDER BY id LIMIT ?`
)

const defaultLimit = 100

// addLetters adds letters that are not there yet. Their texts come from broken
// records and must not be refused; payload, headers and key are kept as bytes.
func (t tx) addLetters(letters []store.DeadLetter) error {
	now := micros(time.Now())
	return each(t.ctx, t.conn, sqlAddLetter, len(letters), func(i int, statement *sql.Stmt) error {
		l := &letters[i]
		_, err := t.exec(statement, now, store.SanitizeText(string(l.Stage)), store.SanitizeText(l.Code), store.SanitizeText(l.Reason), store.SanitizeText(l.Source),
			store.SanitizeText(l.Service), store.SanitizeText(l.Entity), store.SanitizeText(l.EventID), int64(l.Version), store.SanitizeText(l.Topic), l.Part, l.Offset,
			notNil(l.Payload), l.Headers, []byte(l.DedupKey), int64(l.Position), l.Later.Microseconds(), store.LaterMax.Microseconds())
		return err
	})
}

func (t tx) addAudits(audits []store.Audit) error {
	now := micros(time.Now())
	return each(t.ctx, t.conn, sqlAddAudit, len(audits), func(i int, statement *sql.Stmt) error {
		a := &audits[i]
		var detail *string
		if len(a.Detail) > 0 {
			if !json.Valid(a.Detail) {
				return store.WithClass(errors.New("sqlite: the detail of an audit entry is not JSON"), store.Poison)
			}
			text := string(a.Detail)
			detail = &text
		}
		_, err := t.exec(statement, now, store.SanitizeText(a.Actor), store.SanitizeText(a.Action), store.SanitizeText(a.Reason),
			store.SanitizeText(a.Entity), store.SanitizeText(a.Service), detail)
		return err
	})
}

// AddLetters implements store.DeadLetters.
func (s *Store) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	return s.write(ctx, "add dead letters", func(t tx) error { return t.addLetters(letters) })
}

// ListLetters implements store.DeadLetters.
func (s *Store) ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	if f.NewestFirst {
		return s.letters(ctx, "list dead letters", sqlNewestLetters, filterOf(f, cmp.Or(f.AfterID, math.MaxInt64), f.Limit)...)
	}
	return s.letters(ctx, "list dead letters", sqlListLetters, filterOf(f, f.AfterID, f.Limit)...)
}

// filterOf returns the arguments of letterFilter, and more behind them.
func filterOf(f store.LetterFilter, more ...any) []any {
	return append([]any{string(f.Stage), f.Source, f.Service, f.Entity, f.Code, string(f.State)}, more...)
}

// GroupLetters implements store.DeadLetters.
func (s *Store) GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error) {
	groups, err := list(ctx, s.readers, func(row scanner) (g store.LetterGroup, err error) {
		var first, last int64
		err = row.Scan(&g.Stage, &g.Source, &g.Service, &g.Code, &g.Reason, &g.Letters, &first, &last)
		g.First, g.Last = fromMicros(first), fromMicros(last)
		return g, err
	}, sqlGroupLetters, filterOf(f, store.GroupedLetters, max(limit, 0))...)
	return groups, failed("group dead letters", err)
}

// DueLetters implements store.DeadLetters.
func (s *Store) DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error) {
	names, err := json.Marshal(services)
	if err != nil {
		return nil, err
	}
	return s.letters(ctx, "read due dead letters", sqlDueLetters, string(names), micros(time.Now()), after, limit)
}

func (s *Store) letters(ctx context.Context, what, query string, args ...any) ([]store.DeadLetter, error) {
	letters, err := list(ctx, s.readers, func(row scanner) (store.DeadLetter, error) { return scanLetter(row) }, query, args...)
	return letters, failed(what, err)
}

// Letter implements store.DeadLetters.
func (s *Store) Letter(ctx context.Context, id int64) (store.DeadLetter, error) {
	var payload, original []byte
	var edited bool
	l, err := scanLetter(s.readers.QueryRowContext(ctx, sqlLetter, id), &payload, &original, &edited)
	if err != nil {
		return store.DeadLetter{}, failed("read dead letter", err)
	}
	l.Payload, l.Original = payload, original
	if edited {
		l.Original = notNil(original) // the driver returns an empty value as nil
	}
	return l, nil
}

func scanLetter(row scanner, more ...any) (store.DeadLetter, error) {
	var l store.DeadLetter
	var created, last, version, position int64
	var key []byte
	err := row.Scan(append([]any{&l.ID, &created, &last, &l.Count, &l.Stage, &l.Code, &l.Reason, &l.Source, &l.Service, &l.Entity, &l.EventID,
		&version, &l.Topic, &l.Part, &l.Offset, &l.Headers, &l.State, &key, &position}, more...)...)
	l.Version, l.Position, l.DedupKey = change.Version(version), change.Version(position), string(key)
	l.Created, l.Last = fromMicros(created), fromMicros(last)
	return l, err
}

const sqlCountLetters = `SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE state = 'open' AND stage = ? LIMIT ?)`

// CountLetters implements store.DeadLetters.
func (s *Store) CountLetters(ctx context.Context) (map[store.Stage]int64, error) {
	counts := make(map[store.Stage]int64)
	for _, stage := range store.Stages {
		var n int64
		if err := s.readers.QueryRowContext(ctx, sqlCountLetters, stage, store.CountedLetters+1).Scan(&n); err != nil {
			return nil, failed("count dead letters", err)
		}
		if n > 0 {
			counts[stage] = n
		}
	}
	return counts, nil
}

const sqlCountLettersOf = `
SELECT count(*) FROM (SELECT 1 FROM dead_letters WHERE state = 'open' AND source = ? AND source <> '' LIMIT ?)`

// CountLettersOf implements store.DeadLetters.
func (s *Store) CountLettersOf(ctx context.Context, source string, most int64) (n int64, err error) {
	err = s.readers.QueryRowContext(ctx, sqlCountLettersOf, source, most).Scan(&n)
	return n, failed("count dead letters of a source", err)
}

// prunePage bounds one transaction of Prune, so that decisions never wait long
// for it.
const prunePage = 2000

// The index by time says at once that there is nothing to do.
const (
	sqlPruneLetters = `DELETE FROM dead_letters WHERE id IN (SELECT id FROM dead_letters WHERE last_at < ? ORDER BY last_at LIMIT ?)`
	sqlPruneAudit   = `DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE time < ? ORDER BY time LIMIT ?)`
	sqlPruneJobs    = `DELETE FROM jobs WHERE id IN (SELECT id FROM jobs WHERE state <> 'open' AND updated_at < ? ORDER BY updated_at LIMIT ?)`
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
		var page int64
		err := s.write(ctx, "prune", func(t tx) (err error) {
			page, err = t.once(statement, micros(before), prunePage)
			return err
		})
		if err != nil {
			return n, err
		}
		if n += int(page); page < prunePage {
			return n, nil
		}
	}
}

// Audits implements store.Reader.
func (s *Store) Audits(ctx context.Context, afterID int64, limit int) ([]store.Audit, error) {
	audits, err := list(ctx, s.readers, func(row scanner) (a store.Audit, err error) {
		var at int64
		err = row.Scan(&a.ID, &at, &a.Actor, &a.Action, &a.Reason, &a.Entity, &a.Service, &a.Detail)
		a.Time = fromMicros(at)
		return a, err
	}, sqlAudits, afterID, max(limit, 0))
	return audits, failed("read audit", err)
}
