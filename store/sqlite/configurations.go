package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

const (
	sqlInbox    = `SELECT generation, partitions FROM inboxes WHERE topic = ? AND topic_id = ? ORDER BY generation DESC LIMIT 1`
	sqlEndMarks = `UPDATE watermarks SET token = x'' WHERE token <> x''`
	sqlGoOn     = `
INSERT INTO watermarks (generation, partition, next_offset, last_to, token)
SELECT ?2, partition, next_offset, last_to, x'' FROM watermarks WHERE generation = ?1`
	sqlGoOnFrom = `UPDATE watermarks SET next_offset = ?3 WHERE generation = ?1 AND partition = ?2`
	sqlForgot   = `
INSERT INTO forgotten (generation, partition, decided_to, revision) VALUES (?, ?, ?, ?)
ON CONFLICT (generation, partition) DO UPDATE SET decided_to = excluded.decided_to, revision = excluded.revision
WHERE excluded.decided_to > forgotten.decided_to`
	sqlKnowAgain = `
DELETE FROM forgotten WHERE generation < ? OR decided_to <=
    (SELECT next_offset FROM watermarks w WHERE w.generation = forgotten.generation AND w.partition = forgotten.partition)`
)

const (
	sqlActive = `SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT 1`

	sqlActivateFrom = `
INSERT INTO activations (revision, partition, position)
SELECT ?, partition, max(generation << 48 | next_offset) FROM watermarks GROUP BY partition`
)

// Activate implements store.Configurations.
func (s *Store) Activate(ctx context.Context, fingerprint []byte, above int64, force bool) (store.Revision, error) {
	fingerprint = notNil(fingerprint)
	active, err := s.Active(ctx)
	if err == nil && bytes.Equal(active.Fingerprint, fingerprint) {
		return active, nil
	}
	err = s.write(ctx, "activate", func(t tx) error {
		var err error
		active, err = scanRevision(t.conn.QueryRowContext(t.ctx, sqlActive))
		if err == nil && bytes.Equal(active.Fingerprint, fingerprint) {
			return nil
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var once bool
		if err := t.conn.QueryRowContext(t.ctx, `SELECT EXISTS (SELECT 1 FROM revisions WHERE fingerprint = ?)`, fingerprint).Scan(&once); err != nil {
			return err
		}
		if once && !force {
			return store.ErrSuperseded
		}
		now := micros(time.Now())
		active = store.Revision{Number: max(active.Number, above) + 1, Fingerprint: bytes.Clone(fingerprint), Activated: fromMicros(now)}
		_, err = t.once(`INSERT INTO revisions (number, fingerprint, activated_at) VALUES (?, ?, ?)`, active.Number, fingerprint, now)
		if err == nil {
			_, err = t.once(sqlActivateFrom, active.Number)
		}
		if err != nil {
			return err
		}
		return t.dropActivations()
	})
	if err != nil {
		return store.Revision{}, err
	}
	return active, nil
}

// dropActivations deletes those that no position needs.
func (t tx) dropActivations() error {
	all, err := activations(t.ctx, t.conn)
	if err != nil {
		return err
	}
	progress, err := list(t.ctx, t.conn, scanProgress, sqlAllProgress)
	if err != nil {
		return err
	}
	for _, a := range store.StaleActivations(all, progress) {
		if _, err := t.once(sqlDropActivation, a.Revision, a.Partition); err != nil {
			return err
		}
	}
	return nil
}

// Active implements store.Configurations.
func (s *Store) Active(ctx context.Context) (store.Revision, error) {
	r, err := scanRevision(s.readers.QueryRowContext(ctx, sqlActive))
	if err != nil {
		return store.Revision{}, failed("active revision", err)
	}
	return r, nil
}

// Revisions implements store.Configurations.
func (s *Store) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	all, err := list(ctx, s.readers, scanRevision, `SELECT number, fingerprint, activated_at FROM revisions ORDER BY number DESC LIMIT ?`, max(limit, 0))
	return all, failed("list revisions", err)
}

func scanRevision(row scanner) (store.Revision, error) {
	var r store.Revision
	var activated int64
	if err := row.Scan(&r.Number, &r.Fingerprint, &activated); err != nil {
		return store.Revision{}, err
	}
	r.Activated = fromMicros(activated)
	return r, nil
}

// KnownInbox implements store.Configurations.
func (s *Store) KnownInbox(ctx context.Context, topic, topicID string) (store.Inbox, error) {
	inbox := store.Inbox{Topic: topic, TopicID: topicID}
	err := s.readers.QueryRowContext(ctx, sqlInbox, topic, topicID).
		Scan(&inbox.Generation, &inbox.Partitions)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Inbox{}, store.ErrNotFound
	}
	if err != nil {
		return store.Inbox{}, failed("known inbox", err)
	}
	return inbox, nil
}

// Inboxes implements store.Configurations.
func (s *Store) Inboxes(ctx context.Context) ([]store.Inbox, error) {
	all, err := list(ctx, s.readers, func(row scanner) (i store.Inbox, err error) {
		err = row.Scan(&i.Generation, &i.Topic, &i.TopicID, &i.Partitions)
		return i, err
	}, `SELECT generation, topic, topic_id, partitions FROM inboxes ORDER BY generation`)
	return all, failed("inboxes", err)
}

// ResolveInbox implements store.Configurations.
func (s *Store) ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, atLeast uint16) (store.Inbox, error) {
	inbox := store.Inbox{Topic: topic, TopicID: topicID, Partitions: partitions}
	err := s.write(ctx, "resolve inbox", func(t tx) error {
		var known int32
		err := t.conn.QueryRowContext(t.ctx, sqlInbox, topic, topicID).Scan(&inbox.Generation, &known)
		if err == nil {
			if known != partitions {
				return store.WithClass(store.ErrRepartitioned, store.Fatal)
			}
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return t.openInbox(&inbox, atLeast)
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return inbox, nil
}

// openInbox gives inbox a generation above all others.
func (t tx) openInbox(inbox *store.Inbox, atLeast uint16) error {
	var newest int
	if err := t.conn.QueryRowContext(t.ctx, `SELECT coalesce(max(generation), 0) FROM inboxes`).Scan(&newest); err != nil {
		return err
	}
	next := max(newest+1, int(atLeast))
	if next > math.MaxInt16 {
		return bug("no generation is left after %d", newest)
	}
	inbox.Generation = uint16(next)
	_, err := t.once(`INSERT INTO inboxes (generation, topic, topic_id, partitions, opened_at) VALUES (?, ?, ?, ?, ?)`,
		next, inbox.Topic, inbox.TopicID, inbox.Partitions, micros(time.Now()))
	return err
}

// RenewInbox implements store.Configurations.
func (s *Store) RenewInbox(ctx context.Context, inbox store.Inbox, atLeast uint16, from map[int32]int64) (store.Inbox, error) {
	renewed := inbox
	err := s.write(ctx, "renew inbox", func(t tx) error {
		renewed = inbox
		err := t.conn.QueryRowContext(t.ctx, sqlInbox, inbox.Topic, inbox.TopicID).Scan(&renewed.Generation, &renewed.Partitions)
		if err != nil || renewed.Generation != inbox.Generation {
			return err
		}
		if err := t.openInbox(&renewed, atLeast); err != nil {
			return err
		}
		if _, err := t.once(sqlEndMarks); err != nil {
			return err
		}
		if _, err := t.once(sqlGoOn, inbox.Generation, renewed.Generation); err != nil {
			return err
		}
		for n, next := range from {
			if _, err := t.once(sqlGoOnFrom, renewed.Generation, n, next); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return renewed, nil
}

// NoteForgotten implements store.Configurations.
func (s *Store) NoteForgotten(ctx context.Context, generation uint16, seen []store.Forgotten) (all []store.Forgotten, err error) {
	err = s.write(ctx, "note what was forgotten", func(t tx) error {
		for _, f := range seen {
			if _, err := t.once(sqlForgot, f.Partition.Generation, f.Partition.Number, f.To, f.Revision); err != nil {
				return err
			}
		}
		if _, err := t.once(sqlKnowAgain, generation); err != nil {
			return err
		}
		all, err = list(t.ctx, t.conn, func(row scanner) (f store.Forgotten, err error) {
			err = row.Scan(&f.Partition.Generation, &f.Partition.Number, &f.To, &f.Revision)
			return f, err
		}, `SELECT generation, partition, decided_to, revision FROM forgotten WHERE generation = ?`, generation)
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
	err := s.write(ctx, "services", func(t tx) error {
		err := each(t.ctx, t.conn, `INSERT INTO services (name) SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM services WHERE name = ?1)`, len(names), func(i int, statement *sql.Stmt) error {
			_, err := t.exec(statement, names[i])
			return err
		})
		if err != nil {
			return err
		}
		return each(t.ctx, t.conn, `SELECT number FROM services WHERE name = ?`, len(names), func(i int, statement *sql.Stmt) error {
			var n int32
			err := statement.QueryRowContext(t.ctx, names[i]).Scan(&n)
			numbers[names[i]] = n
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}
