package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// journal is a topic that no restore of the store takes back: an entry for each activation of a
// configuration and each generation of the inbox, durable before the store commits it. An entry
// that the store does not know was lost in a restore, with decisions perhaps, or its process died
// before the commit. All methods may be called concurrently. A nil one notes nothing.
type journal struct {
	logs  assemble.Logs
	topic string

	mu         sync.Mutex // held during reads and appends
	id         string     // of the topic; what follows is of it
	next       int64      // offset behind the last entry that was read
	revisions  []int64    // numbers of activations
	revision   int64      // the highest one
	generation uint16     // the highest one
}

// journalEntry is the value of a record: an activation or a generation.
type journalEntry struct {
	Revision    int64  `json:"revision,omitempty"`
	Fingerprint []byte `json:"fingerprint,omitempty"` // of the configuration, for people
	Generation  uint16 `json:"generation,omitempty"`
}

// journalTimeout bounds the wait of a transaction of the store for the journal.
const journalTimeout = 10 * time.Second

// read reads to the end of the journal. The caller holds mu.
func (j *journal) read(ctx context.Context) error {
	id, err := j.logs.TopicID(ctx, j.topic)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, ends, err := j.logs.Offsets(ctx, j.topic)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	if id != j.id {
		j.id, j.next, j.revisions, j.revision, j.generation = id, 0, nil, 0, 0
	}
	err = j.logs.Scan(ctx, j.topic, map[int32]int64{0: j.next}, ends, func(r transport.Scanned) error {
		var e journalEntry
		if err := json.Unmarshal(r.Value, &e); err != nil {
			return fmt.Errorf("entry at offset %d: %w", r.Offset, err)
		}
		if e.Revision > 0 {
			j.revisions = append(j.revisions, e.Revision)
		}
		j.revision, j.generation = max(j.revision, e.Revision), max(j.generation, e.Generation)
		j.next = r.Offset + 1
		return nil
	})
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.next = max(j.next, ends[0])
	return nil
}

// append returns when an entry is durable. The caller holds mu.
func (j *journal) append(ctx context.Context, e journalEntry) error {
	value, err := json.Marshal(e)
	if err == nil {
		err = j.logs.Append(ctx, []transport.Record{{Topic: j.topic, Value: value, Pinned: true}})
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// knownTo reports whether the store knows all entries. The caller holds mu.
func (j *journal) knownTo(h store.History) bool {
	return j.id == h.Journal && j.generation <= h.Generation &&
		!slices.ContainsFunc(j.revisions, func(n int64) bool { return n > h.Void && !slices.Contains(h.Revisions, n) })
}

// matches reads the journal, then the history, and reports whether this has all entries. It may
// report false during a commit.
func (j *journal) matches(ctx context.Context, history func(context.Context) (store.History, error)) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.read(ctx); err != nil {
		return false, err
	}
	h, err := history(ctx)
	return err == nil && j.knownTo(h), err
}

// note makes a Note that is called under mu, when all of the journal was read.
func (j *journal) note(ctx context.Context, f func(ctx context.Context, h store.History) (store.Noted, error)) store.Note {
	return func(h store.History) (store.Noted, error) {
		ctx, cancel := context.WithTimeout(ctx, journalTimeout)
		defer cancel()
		j.mu.Lock()
		defer j.mu.Unlock()
		if err := j.read(ctx); err != nil {
			return store.Noted{}, err
		}
		return f(ctx, h)
	}
}

// noteGeneration notes a generation above all others and above least. Unless it is needed, it does
// only where the store does not know all entries.
func (j *journal) noteGeneration(ctx context.Context, least uint16, needed bool) store.Note {
	if j == nil {
		return func(h store.History) (n store.Noted, _ error) {
			if needed {
				n.Generation = max(least, h.Generation) + 1
			}
			return n, nil
		}
	}
	return j.note(ctx, func(ctx context.Context, h store.History) (n store.Noted, err error) {
		if needed || !j.knownTo(h) {
			n = store.Noted{Generation: max(least, j.generation, h.Generation) + 1, Journal: j.id, Void: max(h.Void, j.revision)}
			err = j.append(ctx, journalEntry{Generation: n.Generation})
		}
		return n, err
	})
}

// errDoubt defers an activation.
var errDoubt = errors.New("decisions may have been lost in a restore, and not all of them are made again")

// noteActivation notes an activation. It is errDoubt while partitions are in doubt and patient.
// Later a generation begins with it: another configuration would make the lost decisions again
// under the same versions.
func (j *journal) noteActivation(ctx context.Context, fingerprint []byte, patient bool) store.Note {
	if j == nil {
		return nil
	}
	return j.note(ctx, func(ctx context.Context, h store.History) (n store.Noted, err error) {
		n.Revision = max(j.revision, h.Active, h.Void) + 1
		if h.Doubt {
			if patient && j.knownTo(h) { // else a generation begins anyway
				return n, errDoubt
			}
			n.Generation, n.Journal, n.Void = max(j.generation, h.Generation)+1, j.id, n.Revision-1
			if err := j.append(ctx, journalEntry{Generation: n.Generation}); err != nil {
				return n, err
			}
		}
		return n, j.append(ctx, journalEntry{Revision: n.Revision, Fingerprint: fingerprint})
	})
}
