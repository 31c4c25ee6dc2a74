package postgres

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/store"
)

// mark is the stored state of a slot.
type mark struct {
	// Epoch names an unbroken sequence of changes. Another one begins with a gap, and all rows
	// are read again.
	Epoch     string `json:"epoch"`
	Era       int64  `json:"era"`      // orders epochs: the number of the session that began it
	Database  string `json:"database"` // the cluster, the database in it and the slot
	Timeline  int32  `json:"timeline"`
	Confirmed int64  `json:"confirmed"`      // every change before it is durable
	Rows      int64  `json:"rows,omitempty"` // place of the rows that were read last
	Last      commit `json:"last,omitzero"`
	Diverged  bool   `json:"diverged,omitempty"` // the log lacks Last
	// Tables are the tables that every session has read since their rows: the slot passes the changes
	// of all others.
	Tables []string `json:"tables,omitempty"`
}

// commit is the newest durable transaction. The log of a database that was restored lacks it, or
// has another one there.
type commit struct {
	LSN int64 `json:"lsn"`
	At  int64 `json:"at"` // in µs since 1970
}

// tableMark is the stored state of the reading of a table's rows.
type tableMark struct {
	Epoch    string `json:"epoch"`
	Timeline int32  `json:"timeline,omitempty"`
	// Since is the place of the first rows. Rows of later pieces have later ones. Changes up to
	// it are left out: the rows include them, or they belong to another table or entity.
	Since int64 `json:"since,omitempty"`
	Done  bool  `json:"done"`
	Again bool  `json:"again,omitempty"` // rows were read before: some may have been deleted since
	// Until is the place of the last rows: up to it, the stored document of a row may not be the one before
	// a change.
	Until  int64      `json:"until,omitempty"`
	Ranges []keyRange `json:"ranges,omitempty"`
	// Identity is the table whose rows these are. It is given by the first snapshot, and follows
	// the changes that the log has.
	Identity identity    `json:"identity,omitzero"`
	Names    columnNames `json:"names,omitempty"`
	Cause    string      `json:"cause,omitempty"` // why the rows are to be read again
}

// keyRange is the rows with keys above From, up to To; nil has no bound. Those up to At were read.
type keyRange struct {
	From []string `json:"from,omitempty"`
	To   []string `json:"to,omitempty"`
	At   []string `json:"at,omitempty"`
	Done bool     `json:"done,omitempty"`
}

// kept is a value in the store. Its saves have one order.
type kept[T any] struct {
	positions store.SourcePositions
	source    string
	identity  string
	saves     int64
	value     T
}

// load reads the value and reports whether there is one.
func (k *kept[T]) load(ctx context.Context) (bool, error) {
	p, err := k.positions.Position(ctx, k.source, k.identity)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	k.saves = p.Offset
	return true, json.Unmarshal(p.State, &k.value)
}

func (k *kept[T]) save(ctx context.Context) error {
	state, err := json.Marshal(k.value)
	if err != nil {
		return err
	}
	k.saves++
	return k.positions.SetPosition(ctx, store.SourcePosition{Source: k.source, Identity: k.identity, Offset: k.saves, State: state})
}

// timelines are the histories of a cluster: each promotion and each recovery begins one.
type timelines struct {
	prefix  string // of the streams' identities
	session string // that reads them, as a header
	era     int64
	current int32
	past    []segment // the oldest first
}

// segment is a timeline that ended.
type segment struct {
	id  int32
	end int64
}

// parseTimelines reads a history file.
func parseTimelines(current int32, history string) (t timelines, err error) {
	t.current = current
	for line := range strings.Lines(history) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		var s segment
		var high, low uint32
		if _, err := fmt.Sscanf(line, "%d\t%X/%X", &s.id, &high, &low); err != nil {
			return t, fmt.Errorf("the history of timeline %d: %w", current, err)
		}
		s.end = int64(high)<<32 | int64(low)
		t.past = append(t.past, s)
	}
	return t, nil
}

// stream is the stream that has a position: a timeline in an epoch.
func (t timelines) stream(lsn int64) stream {
	id := t.current
	for _, s := range t.past {
		if lsn < s.end {
			id = s.id
			break
		}
	}
	return stream{fmt.Sprintf("%s-%d", t.prefix, id), t.sequence(id), t.session}
}

// sequence orders the streams: epochs, and in each its timelines.
func (t timelines) sequence(timeline int32) string {
	return fmt.Sprintf("t%016x.%08x", t.era, timeline)
}

// stream is positions that have one order, read by one session.
type stream struct{ id, sequence, session string }

// wrote reports whether a commit of a timeline is in the history.
func (t timelines) wrote(id int32, lsn int64) bool {
	return id == t.current || slices.ContainsFunc(t.past, func(s segment) bool { return s.id == id && lsn < s.end })
}

// holds reports whether the history has everything of a timeline up to a position.
func (t timelines) holds(id int32, lsn int64) bool {
	if id == t.current {
		return true
	}
	for _, s := range t.past {
		if s.id == id {
			return lsn <= s.end
		}
	}
	return false
}

// gap returns why changes between the marked position and those that the slot sends may be missing,
// or why the database lacks changes that were read; empty without a gap.
func (m mark) gap(slot slotState, t timelines, position int64) string {
	read := max(m.Confirmed, m.Rows)
	switch {
	case slot.confirmed > m.Confirmed:
		return "the slot begins after the last change that was read: it was re-created, another program has read it, or Weir's store was restored"
	case !t.holds(m.Timeline, read):
		return "the database lost commits that were read of it, by a fail-over or a recovery"
	case position < read || m.Diverged:
		return "the database was restored to an earlier state"
	}
	return ""
}

func newEpoch() string { return strings.ToLower(rand.Text()[:10]) }

// next begins an epoch, with the number of the session that begins it.
func (m mark) next(number, confirmed int64) mark {
	return mark{Epoch: newEpoch(), Era: number, Confirmed: confirmed}
}
