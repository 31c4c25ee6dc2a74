package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-86dfc502/weir/store"
)

// Activate implements store.Configurations. It waits for decisions under way; none of an
// older revision commits after it returned.
func (s *Store) Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error) {
	fingerprint = notNil(fingerprint)
	active, err := s.Active(ctx)
	if err == nil && bytes.Equal(active.Fingerprint, fingerprint) {
		return active, nil
	}
	err = s.DB.Write(ctx, "activate", func(t Tx) error {
		if err := errors.Join(t.Lock(Revisions), t.Lock(Inboxes)); err != nil {
			return err
		}
		active, err = one(listIn(t, sqlActiveRevision(), scanRevision))
		if err == nil && bytes.Equal(active.Fingerprint, fingerprint) || err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		known, err := one(listIn(t, sqlCountRevisions(fingerprint), scanValue[int64]))
		if err != nil {
			return err
		}
		if known > 0 && !force {
			return store.ErrSuperseded
		}
		current, err := one(listIn(t, sqlInbox(inbox.Topic, inbox.TopicID), scanInbox))
		doubt := false
		if err == nil && active.Number > 0 {
			doubt, err = one(listIn(t, sqlInDoubt(current.Generation), scanValue[bool]))
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) { // without an inbox nothing was decided
			return err
		}
		noted, err := noteOf(t, note, doubt)
		if err == nil && note != nil && noted.Generation > 0 {
			err = renew(t, &current, noted, nil)
		}
		if err != nil {
			return err
		}
		active = store.Revision{Number: noted.Revision, Fingerprint: bytes.Clone(fingerprint), Activated: now()}
		_, err = t.Exec(sqlAddRevision(active))
		return err
	})
	if err != nil {
		return store.Revision{}, err
	}
	return active, nil
}

// noteOf calls note, and compares its numbers with the history.
func noteOf(t Tx, note store.Note, doubt bool) (n store.Noted, err error) {
	h := store.History{Doubt: doubt}
	if err := t.Query(sqlHistory(), func(row Row) error { return scanHistory(row, &h) }); err != nil {
		return n, err
	}
	n = store.Noted{Revision: max(h.Active, h.Void) + 1, Generation: h.Generation + 1, Journal: h.Journal, Void: h.Void}
	if note != nil {
		n, err = note(h)
	}
	switch {
	case err != nil:
	case n.Generation > math.MaxInt16:
		err = store.WithClass(fmt.Errorf("no generation is left after %d", h.Generation), store.Fatal)
	case n.Revision > 0 && n.Revision <= max(h.Active, h.Void), n.Generation > 0 && n.Generation <= h.Generation:
		err = store.ErrFenced
	}
	return n, err
}

// History implements store.Configurations.
func (s *Store) History(ctx context.Context) (h store.History, err error) {
	err = s.DB.Read(ctx, "history", sqlHistory(), func(row Row) error { return scanHistory(row, &h) })
	return h, err
}

// scanHistory adds a row: the newest generation, or a revision.
func scanHistory(row Row, h *store.History) error {
	var number, void int64
	var generation uint16
	var journal string
	err := row.Scan(&number, &generation, &journal, &void)
	if number > 0 {
		h.Active = max(h.Active, number)
		h.Revisions = append(h.Revisions, number)
	} else {
		h.Generation, h.Journal, h.Void = generation, journal, void
	}
	return err
}

// Active implements store.Configurations.
func (s *Store) Active(ctx context.Context) (store.Revision, error) {
	return one(list(ctx, s, "active revision", sqlActiveRevision(), scanRevision))
}

// Revisions implements store.Configurations.
func (s *Store) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	return list(ctx, s, "list revisions", sqlRevisions(max(limit, 0)), scanRevision)
}

func scanRevision(row Row) (r store.Revision, err error) {
	err = row.Scan(&r.Number, &r.Fingerprint, &r.Activated)
	return r, err
}

// KnownInbox implements store.Configurations.
func (s *Store) KnownInbox(ctx context.Context, topic, topicID string) (store.Inbox, error) {
	return one(list(ctx, s, "known inbox", sqlInbox(topic, topicID), scanInbox))
}

// Inboxes implements store.Configurations.
func (s *Store) Inboxes(ctx context.Context) ([]store.Inbox, error) {
	return list(ctx, s, "inboxes", sqlInboxes(), scanInbox)
}

func scanInbox(row Row) (i store.Inbox, err error) {
	err = row.Scan(&i.Generation, &i.Topic, &i.TopicID, &i.Partitions)
	return i, err
}

// ResolveInbox implements store.Configurations.
func (s *Store) ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, note store.Note) (inbox store.Inbox, err error) {
	err = s.DB.Write(ctx, "resolve inbox", func(t Tx) error {
		if err := t.Lock(Inboxes); err != nil {
			return err
		}
		inbox, err = one(listIn(t, sqlInbox(topic, topicID), scanInbox))
		switch {
		case err == nil && inbox.Partitions != partitions:
			return store.WithClass(store.ErrRepartitioned, store.Fatal)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		noted, err := noteOf(t, note, false)
		if err != nil {
			return err
		}
		inbox = store.Inbox{Topic: topic, TopicID: topicID, Partitions: partitions}
		return openInbox(t, &inbox, noted)
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return inbox, nil
}

// openInbox opens the noted generation for inbox. The caller holds the lock.
func openInbox(t Tx, inbox *store.Inbox, noted store.Noted) error {
	inbox.Generation = noted.Generation
	_, err := t.Exec(sqlOpenInbox(inbox, noted, now()))
	return err
}

// RenewInbox implements store.Configurations.
func (s *Store) RenewInbox(ctx context.Context, inbox store.Inbox, from map[int32]int64, note store.Note) (renewed store.Inbox, err error) {
	err = s.DB.Write(ctx, "renew inbox", func(t Tx) error {
		if err := t.Lock(Inboxes); err != nil {
			return err
		}
		renewed, err = one(listIn(t, sqlInbox(inbox.Topic, inbox.TopicID), scanInbox))
		if err != nil || renewed.Generation != inbox.Generation {
			return err
		}
		noted, err := noteOf(t, note, false)
		if err != nil || noted.Generation == 0 {
			return err
		}
		return renew(t, &renewed, noted, from)
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return renewed, nil
}

// renew opens the noted generation, in which the partitions of inbox go on. The caller holds
// the lock of inboxes.
func renew(t Tx, inbox *store.Inbox, noted store.Noted, from map[int32]int64) error {
	before := inbox.Generation
	if err := openInbox(t, inbox, noted); err != nil {
		return err
	}
	// Takeovers and decisions under way end first, and these owners make no other.
	if err := t.Lock(Watermarks); err != nil {
		return err
	}
	calls := []Call{sqlEndOwners(),
		sqlContinueWatermarks(before, inbox.Generation),
		sqlBeginWatermarks(inbox.Generation)}
	for partition, next := range from {
		calls = append(calls, sqlContinueAt(inbox.Generation, partition, next))
	}
	_, err := t.Exec(calls...)
	return err
}

// EndDoubt implements store.Configurations.
func (s *Store) EndDoubt(ctx context.Context, token store.Token, ends map[store.Partition]int64) error {
	var calls []Call
	for p, end := range ends {
		calls = append(calls, sqlEndDoubt(token[:], p, end))
	}
	_, err := s.write(ctx, "end doubt", calls...)
	return err
}

// Services implements store.Configurations.
func (s *Store) Services(ctx context.Context, names []string) (map[string]int32, error) {
	numbers := make(map[string]int32, len(names))
	if len(names) == 0 {
		return numbers, nil
	}
	var calls []Call
	for _, name := range slices.Sorted(slices.Values(names)) {
		calls = append(calls, sqlAddService(name))
	}
	err := s.DB.Write(ctx, "services", func(t Tx) error {
		if err := t.Lock(Services); err != nil {
			return err
		}
		if _, err := t.Exec(calls...); err != nil {
			return err
		}
		return t.Query(sqlServices(names), func(row Row) error { return scanService(row, numbers) })
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}

// KnownServices implements store.Reader.
func (s *Store) KnownServices(ctx context.Context) (map[string]int32, error) {
	numbers := map[string]int32{}
	err := s.DB.Read(ctx, "read services", sqlKnownServices(), func(row Row) error { return scanService(row, numbers) })
	return numbers, err
}

func scanService(row Row, numbers map[string]int32) error {
	var name string
	var number int32
	err := row.Scan(&name, &number)
	numbers[name] = number
	return err
}
