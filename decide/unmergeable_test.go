package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// deep is a document of a depth.
func deep(n int) string {
	return fmt.Sprintf(`{"id":"deep","x":%s%s}`, strings.Repeat("[", n-1), strings.Repeat("]", n-1))
}

// mounted is a plan with the registry under a mount.
func mounted(t *testing.T, p *Plan) *Plan {
	t.Helper()
	next := *p
	next.Merge = merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry", Mount: canonicaltree.Path{"at"}}, {Name: "lab", Patch: true}}})
	next.Fingerprint = []byte("mounted")
	require.NoError(t, next.Prepare())
	return &next
}

// A document that is as deep as documents may be is too deep under a mount that
// comes later. The mistake that this catches: the first event or command about its
// entity blocks a whole worker.
func TestStoredDocumentsThatDoNotMergeAreDeadLetters(t *testing.T) {
	w := newFlow(t)
	before, _ := w.owner(t, nil)
	hand(t, before, 0, event(t, "deep", 0, deep(canonicaltree.DefaultDepth)))
	require.Eventually(t, before.Idle, time.Minute, time.Millisecond)

	next := mounted(t, w.plan)
	revision, err := w.store.Activate(t.Context(), next.Fingerprint, false, store.Inbox{}, nil)
	require.NoError(t, err)
	next.Revision, w.plan = revision.Number, next

	after, _ := w.owner(t, nil)
	redecide := change.Record{Entity: "deep", Control: &change.Control{Action: change.Redecide, Actor: "somebody"}}
	key, head, value, err := change.EncodeRecord(redecide)
	require.NoError(t, err)
	control := transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: 2, Time: time.UnixMilli(1)}
	result := begin(t, after, 0,
		event(t, "deep", 1, deep(canonicaltree.DefaultDepth)), // noise, under another configuration
		control,
		event(t, "other", 3, `{"id":"other"}`),
		event(t, "deep", 4, deep(3)), // what it needs
	)
	select {
	case err := <-result:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		require.FailNow(t, "the worker is halted", after.Halted())
	}
	letters, err := w.store.ListLetters(t.Context(), store.LetterFilter{})
	require.NoError(t, err)
	require.Len(t, letters, 2)
	for i, l := range letters {
		require.Equal(t, "merge", l.Code)
		require.Equal(t, "deep", l.Entity)
		require.EqualValues(t, i+1, l.Offset)
	}
	other, err := w.store.Entity(t.Context(), "other")
	require.NoError(t, err)
	require.NotEmpty(t, other.States.All("other"), "the others go on")
	e, err := w.store.Entity(t.Context(), "deep")
	require.NoError(t, err)
	require.JSONEq(t, `{"registry":`+deep(3)+`}`, string(e.Docs))
	require.Equal(t, next.Stamp(), e.Fingerprint)
}

// The letter of an event that does not merge is replayed once the configuration is
// mended, under the event id that it died with.
func TestADocumentThatDidNotMergeIsReplayed(t *testing.T) {
	p := bananaPlan(t)
	r := posted(deep(canonicaltree.DefaultDepth), nil)
	r.Event.EventID = "e"
	v := decideOne(t, mounted(t, p), store.Entity{ID: "B-007"}, r)
	require.Len(t, v.out.Letters, 1)
	require.Empty(t, v.out.Entities, "nothing of it was applied")

	r.Event.Replay = &change.Replay{Letter: 9, Version: v.out.Letters[0].Version, Died: time.Unix(1001, 0).UnixMilli()}
	v = decideOne(t, p, store.Entity{ID: "B-007"}, r)
	require.Equal(t, []store.LetterResolution{{ID: 9, State: store.LetterReplayed}}, v.out.Settled)
	require.JSONEq(t, `{"registry":`+string(r.Event.Payload)+`}`, string(v.out.Entities[0].Docs))

	row := v.out.Entities[0]
	row.Found = true
	v = decideOne(t, p, row, r)
	require.Equal(t, []store.LetterResolution{{ID: 9, State: store.LetterObsolete}}, v.out.Settled, "once")
}

// An event that did not merge was not applied, so no letter of it blocks another. The
// mistake that this catches: of two patches the first was obsolete, and lost, because
// the second had died behind it.
func TestPatchesThatDidNotMergeAreReplayedInTheirOrder(t *testing.T) {
	p := bananaPlan(t)
	row := decideOne(t, p, store.Entity{ID: "B-007"}, posted(deep(canonicaltree.DefaultDepth), nil)).out.Entities[0]
	row.Found = true
	bad := mounted(t, p)
	var letters []change.Record
	for i, member := range []string{"a", "b"} {
		r := posted(`{"`+member+`":1}`, nil)
		r.Event.Source, r.Event.EventID = "lab", member
		rec := parseAt(t, &Decider{opt: Options{Plan: p, Inbox: store.Inbox{Generation: 1}}}, r, int64(200+i))
		row.States = row.States.Stored()
		v, err := decideBatch(newBatch(bad, []*record{rec}, unbounded, noCache), store.Loaded{Entities: []store.Entity{row}})
		require.NoError(t, err)
		require.Len(t, v.out.Letters, 1)
		for _, row = range v.out.Entities {
			row.Found = true
		}
		r.Event.Replay = &change.Replay{Letter: int64(i + 1), Version: v.out.Letters[0].Version, Died: time.Unix(1001, 0).UnixMilli()}
		letters = append(letters, r)
	}
	for i, r := range letters {
		v := decideOne(t, p, row, r)
		require.Equal(t, []store.LetterResolution{{ID: int64(i + 1), State: store.LetterReplayed}}, v.out.Settled)
		row = v.out.Entities[0]
		row.Found = true
	}
	require.JSONEq(t, `{"registry":`+deep(canonicaltree.DefaultDepth)+`,"lab":{"a":1,"b":1}}`, string(row.Docs))
}
