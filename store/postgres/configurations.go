package postgres

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// One at a time per table of this schema; the revision's lock is the one
	// that decisions share.
	sqlLockRevisions = `SELECT pg_advisory_xact_lock('revisions'::regclass::oid::bigint)`
	sqlLockInboxes   = `SELECT pg_advisory_xact_lock('inboxes'::regclass::oid::bigint)`
	sqlLockServices  = `SELECT pg_advisory_xact_lock('services'::regclass::oid::bigint)`

	sqlActive   = `SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT 1`
	sqlOnce     = `SELECT EXISTS (SELECT FROM revisions WHERE fingerprint = $1)`
	sqlActivate = `INSERT INTO revisions (number, fingerprint) VALUES ($1, $2) RETURNING activated_at`
	// Nothing is being decided: the lock on revisions is held.
	sqlActivateFrom = `
INSERT INTO activations (revision, partition, position)
SELECT DISTINCT ON (partition) $1::int8, partition, generation::int8 << 48 | next_offset
FROM watermarks ORDER BY partition, generation DESC`

	sqlInboxes   = `SELECT generation, topic, topic_id, partitions FROM inboxes ORDER BY generation`
	sqlInbox     = `SELECT generation, partitions FROM inboxes WHERE topic = $1 AND topic_id = $2 ORDER BY generation DESC LIMIT 1`
	sqlNewest    = `SELECT coalesce(max(generation), 0) FROM inboxes`
	sqlOpenInbox = `INSERT INTO inboxes (generation, topic, topic_id, partitions) VALUES ($1, $2, $3, $4)`

	// Take-overs and decisions under way are waited for, and none of these owners
	// makes another.
	sqlLockTakeOvers = `SELECT pg_advisory_xact_lock('watermarks'::regclass::oid::bigint)`

	sqlLockMarks = `SELECT FROM watermarks ORDER BY partition, generation FOR UPDATE`
	sqlEndMarks  = `UPDATE watermarks SET token = '' WHERE token <> ''`
	sqlGoOn      = `
INSERT INTO watermarks (generation, partition, next_offset, last_to, token)
SELECT $2::int4, w.partition, coalesce(f.next, w.next_offset), w.last_to, ''
FROM watermarks w LEFT JOIN unnest($3::int4[], $4::int8[]) AS f(partition, next) ON f.partition = w.partition
WHERE w.generation = $1`

	sqlForgot = `
INSERT INTO forgotten (generation, partition, decided_to, revision)
SELECT DISTINCT ON (1, 2) * FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::int8[]) AS s(generation, partition, decided_to, revision)
ORDER BY 1, 2, decided_to DESC
ON CONFLICT (generation, partition) DO UPDATE SET decided_to = excluded.decided_to, revision = excluded.revision
WHERE excluded.decided_to > forgotten.decided_to`
	sqlKnowAgain = `
DELETE FROM forgotten f WHERE generation < $1 OR decided_to <=
    (SELECT next_offset FROM watermarks w WHERE w.generation = f.generation AND w.partition = f.partition)`
	sqlForgotten = `SELECT generation, partition, decided_to, revision FROM forgotten WHERE generation = $1`

	sqlServices    = `SELECT name, number FROM services WHERE name = ANY($1::text[])`
	sqlAddServices = `INSERT INTO services (name) SELECT unnest($1::text[]) RETURNING name, number`
)

// Activate implements store.Configurations. It waits for decisions under way;
// none of an older revision commits after it returned.
func (s *Store) Activate(ctx context.Context, fingerprint []byte, above int64, force bool) (store.Revision, error) {
	var active store.Revision
	err := s.inTx(ctx, "activate", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockRevisions); err != nil {
			return err
		}
		var err error
		active, err = scanRevision(tx.QueryRow(ctx, sqlActive))
		if err == nil && bytes.Equal(active.Fingerprint, fingerprint) {
			return nil
		}
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if !force {
			var once bool
			if err := tx.QueryRow(ctx, sqlOnce, notNil(fingerprint)).Scan(&once); err != nil {
				return err
			}
			if once {
				return store.ErrSuperseded
			}
		}
		active.Number = max(active.Number, above) + 1
		active.Fingerprint = bytes.Clone(notNil(fingerprint))
		if err := tx.QueryRow(ctx, sqlActivate, active.Number, active.Fingerprint).Scan(&active.Activated); err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, sqlActivateFrom, active.Number); err != nil {
			return err
		}
		return dropActivations(ctx, tx)
	})
	if err != nil {
		return store.Revision{}, err
	}
	return active, nil
}

// dropActivations deletes those that no position needs. Positions only grow
// meanwhile.
func dropActivations(ctx context.Context, tx pgx.Tx) error {
	progress, err := list(ctx, tx, scanProgress, sqlAllProgress)
	if err != nil {
		return err
	}
	all, err := list(ctx, tx, func(row pgx.Row) (a store.Activation, err error) {
		var position int64
		err = row.Scan(&a.Revision, &a.Partition, &position)
		a.From = change.Version(position)
		return a, err
	}, sqlActivations)
	if err != nil {
		return err
	}
	var revisions []int64
	var partitions []int32
	for _, a := range store.StaleActivations(all, progress) {
		revisions, partitions = append(revisions, a.Revision), append(partitions, a.Partition)
	}
	_, err = tx.Exec(ctx, sqlDropActivations, revisions, partitions)
	return err
}

// Active implements store.Configurations.
func (s *Store) Active(ctx context.Context) (store.Revision, error) {
	r, err := scanRevision(s.pool.QueryRow(ctx, sqlActive))
	if err != nil {
		return store.Revision{}, failed("active revision", err)
	}
	return r, nil
}

// Revisions implements store.Configurations.
func (s *Store) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	all, err := list(ctx, s.pool, scanRevision,
		`SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT $1`, max(limit, 0))
	return all, failed("list revisions", err)
}

func scanRevision(row pgx.Row) (r store.Revision, err error) {
	err = row.Scan(&r.Number, &r.Fingerprint, &r.Activated)
	return r, err
}

// KnownInbox implements store.Configurations.
func (s *Store) KnownInbox(ctx context.Context, topic, topicID string) (store.Inbox, error) {
	inbox := store.Inbox{Topic: topic, TopicID: topicID}
	err := s.pool.QueryRow(ctx, sqlInbox, topic, topicID).Scan(&inbox.Generation, &inbox.Partitions)
	if errors.Is(err, pgx.ErrNoRows) {
		return store.Inbox{}, store.ErrNotFound
	}
	if err != nil {
		return store.Inbox{}, failed("known inbox", err)
	}
	return inbox, nil
}

// Inboxes implements store.Configurations.
func (s *Store) Inboxes(ctx context.Context) ([]store.Inbox, error) {
	all, err := list(ctx, s.pool, func(row pgx.Row) (i store.Inbox, err error) {
		err = row.Scan(&i.Generation, &i.Topic, &i.TopicID, &i.Partitions)
		return i, err
	}, sqlInboxes)
	return all, failed("inboxes", err)
}

// ResolveInbox implements store.Configurations.
func (s *Store) ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, atLeast uint16) (store.Inbox, error) {
	inbox := store.Inbox{Topic: topic, TopicID: topicID, Partitions: partitions}
	err := s.inTx(ctx, "resolve inbox", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockInboxes); err != nil {
			return err
		}
		var known int32
		err := tx.QueryRow(ctx, sqlInbox, topic, topicID).Scan(&inbox.Generation, &known)
		if err == nil {
			if known != partitions {
				return store.WithClass(store.ErrRepartitioned, store.Fatal)
			}
			return nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return openInbox(ctx, tx, &inbox, atLeast)
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return inbox, nil
}

// openInbox gives inbox a generation above all others. The caller holds the lock.
func openInbox(ctx context.Context, tx pgx.Tx, inbox *store.Inbox, atLeast uint16) error {
	var newest int
	if err := tx.QueryRow(ctx, sqlNewest).Scan(&newest); err != nil {
		return err
	}
	next := max(newest+1, int(atLeast))
	if next > math.MaxInt16 {
		return bug("no generation is left after %d", newest)
	}
	inbox.Generation = uint16(next)
	_, err := tx.Exec(ctx, sqlOpenInbox, next, inbox.Topic, inbox.TopicID, inbox.Partitions)
	return err
}

// RenewInbox implements store.Configurations.
func (s *Store) RenewInbox(ctx context.Context, inbox store.Inbox, atLeast uint16, from map[int32]int64) (store.Inbox, error) {
	renewed := inbox
	numbers := slices.Sorted(maps.Keys(from))
	next := make([]int64, len(numbers))
	for i, n := range numbers {
		next[i] = from[n]
	}
	err := s.inTx(ctx, "renew inbox", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockInboxes); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, sqlInbox, inbox.Topic, inbox.TopicID).Scan(&renewed.Generation, &renewed.Partitions)
		if err != nil || renewed.Generation != inbox.Generation {
			return err
		}
		if err := openInbox(ctx, tx, &renewed, atLeast); err != nil {
			return err
		}
		for _, statement := range []string{sqlLockTakeOvers, sqlLockMarks, sqlEndMarks} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, sqlGoOn, int32(inbox.Generation), int32(renewed.Generation), numbers, next)
		return err
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return renewed, nil
}

// NoteForgotten implements store.Configurations.
func (s *Store) NoteForgotten(ctx context.Context, generation uint16, seen []store.Forgotten) (all []store.Forgotten, err error) {
	var generations, partitions []int32
	var to, revisions []int64
	for _, f := range seen {
		generations, partitions = append(generations, int32(f.Partition.Generation)), append(partitions, f.Partition.Number)
		to, revisions = append(to, f.To), append(revisions, f.Revision)
	}
	err = s.inTx(ctx, "note what was forgotten", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockInboxes); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlForgot, generations, partitions, to, revisions); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlKnowAgain, int32(generation)); err != nil {
			return err
		}
		all, err = list(ctx, tx, func(row pgx.Row) (f store.Forgotten, err error) {
			err = row.Scan(&f.Partition.Generation, &f.Partition.Number, &f.To, &f.Revision)
			return f, err
		}, sqlForgotten, int32(generation))
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Services implements store.Configurations.
func (s *Store) Services(ctx context.Context, names []string) (map[string]int32, error) {
	numbers := make(map[string]int32, len(names))
	if len(names) == 0 {
		return numbers, nil
	}
	read := func(tx pgx.Tx, sql string, names []string) error {
		var name string
		var number int32
		return each(ctx, tx, []any{&name, &number}, func() { numbers[name] = number }, sql, names)
	}
	err := s.inTx(ctx, "services", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockServices); err != nil {
			return err
		}
		if err := read(tx, sqlServices, names); err != nil {
			return err
		}
		var missing []string
		for _, n := range names {
			if _, known := numbers[n]; !known {
				missing = append(missing, n)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		slices.Sort(missing)
		return read(tx, sqlAddServices, slices.Compact(missing))
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}
