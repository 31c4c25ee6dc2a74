package shared

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Activate implements store.Configurations. It waits for decisions under way; none of an
// older revision commits after it returned.
func (s *Store) Activate(ctx context.Context, fingerprint []byte, above int64, force bool) (store.Revision, error) {
	fingerprint = notNil(fingerprint)
	active, err := s.Active(ctx)
	if err == nil && bytes.Equal(active.Fingerprint, fingerprint) {
		return active, nil
	}
	err = s.DB.Write(ctx, "activate", func(t Tx) error {
		if err := t.Lock(Revisions); err != nil {
			return err
		}
		active, err = oneIn(t, call("active_revision", args{}), scanRevision)
		if err == nil && bytes.Equal(active.Fingerprint, fingerprint) || err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		known, err := oneIn(t, call("count_revisions", args{"fingerprint": fingerprint}), scanCount)
		if err != nil {
			return err
		}
		if known > 0 && !force {
			return store.ErrSuperseded
		}
		active = store.Revision{Number: max(active.Number, above) + 1, Fingerprint: bytes.Clone(fingerprint), Activated: now()}
		_, err = t.Exec(call("add_revision", args{"number": active.Number, "fingerprint": fingerprint, "now": active.Activated}),
			call("add_activations", args{"revision": active.Number}))
		if err != nil {
			return err
		}
		return dropActivations(t)
	})
	if err != nil {
		return store.Revision{}, err
	}
	return active, nil
}

// dropActivations deletes those that no position needs. Positions only grow meanwhile.
func dropActivations(t Tx) error {
	all, err := listIn(t, call("activations", args{}), func(row Row) (a store.Activation, err error) {
		var position int64
		err = row.Scan(&a.Revision, &a.Partition, &position)
		a.From = change.Version(position)
		return a, err
	})
	if err != nil {
		return err
	}
	progress, err := listIn(t, call("positions", args{}), func(row Row) (p store.Progress, err error) {
		var positions []byte
		if err = row.Scan(&p.Partition, &positions); err == nil {
			p.Positions, err = store.DecodePositions(positions)
		}
		return p, err
	})
	if err != nil {
		return err
	}
	var drops []Call
	for _, a := range store.StaleActivations(all, progress) {
		drops = append(drops, call("drop_activation", args{"revision": a.Revision, "partition": a.Partition}))
	}
	_, err = t.Exec(drops...)
	return err
}

// Active implements store.Configurations.
func (s *Store) Active(ctx context.Context) (store.Revision, error) {
	return one(ctx, s, "active revision", call("active_revision", args{}), scanRevision)
}

// Revisions implements store.Configurations.
func (s *Store) Revisions(ctx context.Context, limit int) ([]store.Revision, error) {
	return list(ctx, s, "list revisions", call("revisions", args{"limit": max(limit, 0)}), scanRevision)
}

func scanRevision(row Row) (r store.Revision, err error) {
	err = row.Scan(&r.Number, &r.Fingerprint, &r.Activated)
	return r, err
}

// KnownInbox implements store.Configurations.
func (s *Store) KnownInbox(ctx context.Context, topic, topicID string) (store.Inbox, error) {
	return one(ctx, s, "known inbox", inboxOf(topic, topicID), scanInbox)
}

func inboxOf(topic, topicID string) Call {
	return call("inbox", args{"topic": topic, "topic_id": topicID})
}

// Inboxes implements store.Configurations.
func (s *Store) Inboxes(ctx context.Context) ([]store.Inbox, error) {
	return list(ctx, s, "inboxes", call("inboxes", args{}), scanInbox)
}

func scanInbox(row Row) (i store.Inbox, err error) {
	err = row.Scan(&i.Generation, &i.Topic, &i.TopicID, &i.Partitions)
	return i, err
}

// ResolveInbox implements store.Configurations.
func (s *Store) ResolveInbox(ctx context.Context, topic, topicID string, partitions int32, atLeast uint16) (inbox store.Inbox, err error) {
	err = s.DB.Write(ctx, "resolve inbox", func(t Tx) error {
		if err := t.Lock(Inboxes); err != nil {
			return err
		}
		inbox, err = oneIn(t, inboxOf(topic, topicID), scanInbox)
		switch {
		case err == nil && inbox.Partitions != partitions:
			return store.WithClass(store.ErrRepartitioned, store.Fatal)
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
		inbox = store.Inbox{Topic: topic, TopicID: topicID, Partitions: partitions}
		return openInbox(t, &inbox, atLeast)
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return inbox, nil
}

// openInbox opens a generation above all others for inbox. The caller holds the lock.
func openInbox(t Tx, inbox *store.Inbox, atLeast uint16) error {
	newest, err := oneIn(t, call("newest_generation", args{}), scanCount)
	if err != nil {
		return err
	}
	next := max(newest+1, int64(atLeast))
	if next > math.MaxInt16 {
		return store.WithClass(fmt.Errorf("no generation is left after %d", newest), store.Fatal)
	}
	inbox.Generation = uint16(next)
	_, err = t.Exec(call("open_inbox", args{"generation": next, "topic": inbox.Topic, "topic_id": inbox.TopicID, "partitions": inbox.Partitions, "now": now()}))
	return err
}

// RenewInbox implements store.Configurations.
func (s *Store) RenewInbox(ctx context.Context, inbox store.Inbox, atLeast uint16, from map[int32]int64) (renewed store.Inbox, err error) {
	err = s.DB.Write(ctx, "renew inbox", func(t Tx) error {
		if err := t.Lock(Inboxes); err != nil {
			return err
		}
		renewed, err = oneIn(t, inboxOf(inbox.Topic, inbox.TopicID), scanInbox)
		if err != nil || renewed.Generation != inbox.Generation {
			return err
		}
		if err := openInbox(t, &renewed, atLeast); err != nil {
			return err
		}
		// Takeovers and decisions under way end first, and these owners make no other.
		if err := t.Lock(Watermarks); err != nil {
			return err
		}
		calls := []Call{call("end_owners", args{"none": []byte{}}),
			call("continue_watermarks", args{"to": int64(renewed.Generation), "from": int64(inbox.Generation), "none": []byte{}})}
		for partition, next := range from {
			calls = append(calls, call("continue_at", args{"generation": int64(renewed.Generation), "partition": partition, "next": next}))
		}
		_, err = t.Exec(calls...)
		return err
	})
	if err != nil {
		return store.Inbox{}, err
	}
	return renewed, nil
}

// NoteLostDecisions implements store.Configurations.
func (s *Store) NoteLostDecisions(ctx context.Context, generation uint16, seen []store.LostDecision) (all []store.LostDecision, err error) {
	var calls []Call
	for _, d := range seen {
		calls = append(calls, call("note_lost_decision", args{"generation": int64(d.Partition.Generation), "partition": d.Partition.Number, "to": d.To, "revision": d.Revision}))
	}
	calls = append(calls, call("drop_lost_decisions", args{"generation": int64(generation)}))
	err = s.DB.Write(ctx, "note lost decisions", func(t Tx) error {
		if err := t.Lock(Inboxes); err != nil {
			return err
		}
		if _, err := t.Exec(calls...); err != nil {
			return err
		}
		all, err = listIn(t, call("lost_decisions", args{"generation": int64(generation)}), func(row Row) (d store.LostDecision, err error) {
			err = row.Scan(&d.Partition.Generation, &d.Partition.Number, &d.To, &d.Revision)
			return d, err
		})
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
	var calls []Call
	for _, name := range slices.Sorted(slices.Values(names)) {
		calls = append(calls, call("add_service", args{"name": name}))
	}
	err := s.DB.Write(ctx, "services", func(t Tx) error {
		if err := t.Lock(Services); err != nil {
			return err
		}
		if _, err := t.Exec(calls...); err != nil {
			return err
		}
		return t.Query(call("services", args{"names": names}), func(row Row) error { return scanService(row, numbers) })
	})
	if err != nil {
		return nil, err
	}
	return numbers, nil
}

// KnownServices implements store.Reader.
func (s *Store) KnownServices(ctx context.Context) (map[string]int32, error) {
	numbers := map[string]int32{}
	err := s.DB.Read(ctx, "read services", call("known_services", args{}), func(row Row) error { return scanService(row, numbers) })
	return numbers, err
}

func scanService(row Row, numbers map[string]int32) error {
	var name string
	var number int32
	err := row.Scan(&name, &number)
	numbers[name] = number
	return err
}
