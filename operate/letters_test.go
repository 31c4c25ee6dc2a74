package operate_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// addLetter stores a letter and returns its id.
func addLetter(t testing.TB, e *operate.Env, l store.DeadLetter) int64 {
	t.Helper()
	rest := l
	rest.Payload = nil // as text it is many times as large
	l.DedupKey = fmt.Sprintf("%s %v %x", t.Name(), rest, sha256.Sum256(l.Payload))
	require.NoError(t, e.Store.(store.DeadLetters).AddLetters(context.Background(), []store.DeadLetter{l}))
	all, err := e.Store.ListLetters(context.Background(), store.LetterFilter{Limit: 10_000})
	require.NoError(t, err)
	return all[len(all)-1].ID
}

// died is the letter of a change, as deliver writes it.
func died(t testing.TB, service string) (store.DeadLetter, change.Change) {
	t.Helper()
	c := change.Change{
		Service: service, Entity: "B", Op: change.Upsert, Version: change.NewVersion(1, 7), Content: change.Content{1, 2, 3},
		Revision: 4, Time: time.UnixMilli(1_700_000_000_123).UTC(), Doc: []byte(`{"weight": 1.50,"id":"B"}`),
	}
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	headers, err := json.Marshal(deliver.LetterHeaders{Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content})
	require.NoError(t, err)
	return store.DeadLetter{Stage: store.StageDeliver, Service: service, Entity: "B", Version: c.Version, Payload: c.AppendRecord(nil), Headers: headers}, c
}

// replay replays letters and returns what became of each.
func replay(t testing.TB, e *operate.Env, l operate.Letters, dry bool) (all []operate.LetterReplay) {
	t.Helper()
	require.NoError(t, e.ReplayLetters(context.Background(), l, "why", dry, func(r operate.LetterReplay) { all = append(all, r) }))
	return all
}

// Each kind of letter comes back the way that is right for it.
func TestWaysBack(t *testing.T) {
	e, log := newEnv(t)
	onState, _ := died(t, aService)
	onLog, sent := died(t, zService)
	head := `{"k":"e","s":"events","t":"T","p":1,"o":5,"i":"id","q":"9","op":"upsert"}`
	headers, err := json.Marshal(map[string]string{change.InboxHeader: head})
	require.NoError(t, err)
	ids := []int64{
		addLetter(t, e, store.DeadLetter{Stage: store.StageIngest, Source: source, Topic: "T", Part: 2, Offset: 3, Payload: []byte(`{"id":"A"}`)}),
		addLetter(t, e, store.DeadLetter{Stage: store.StageDecide, Source: source, Entity: "B", Version: change.NewVersion(1, 6), Payload: []byte(`{"id":"B"}`), Headers: headers}),
		addLetter(t, e, store.DeadLetter{Stage: store.StageDecide, Source: source, Service: aService, Entity: "B", Version: change.NewVersion(1, 6), Code: "oversized"}),
		addLetter(t, e, onState),
		addLetter(t, e, onLog),
	}
	dry := replay(t, e, operate.Letters{IDs: ids}, true)
	require.Zero(t, log.calls)
	all := replay(t, e, operate.Letters{Filter: store.LetterFilter{}}, false)
	require.EqualExportedValues(t, dry, all, "a dry run says what will be")
	for i, way := range []operate.ReplayMode{operate.AsEvent, operate.AsEvent, operate.AsDecision, operate.AsDecision, operate.AsChange} {
		require.Equal(t, way, all[i].Way)
		require.Empty(t, all[i].Refused)
		require.Equal(t, ids[i], all[i].ID)
	}
	records := log.decoded(t)
	require.Len(t, records, 5)
	first, second := records[0].Event, records[1].Event
	require.Equal(t, change.Origin{Source: source, Topic: "T", Partition: 2, Offset: 3}, first.Origin, "the position that it had")
	require.Zero(t, first.Replay.Version, "it never was in the inbox")
	require.Equal(t, ids[0], first.Replay.Letter)
	require.NotZero(t, first.Replay.Died)
	require.Equal(t, change.Origin{Source: source, Topic: "T", Partition: 1, Offset: 5}, second.Origin)
	require.Equal(t, "9", second.Sequence)
	require.Equal(t, change.NewVersion(1, 6), second.Replay.Version)
	for i, c := range []*change.Control{records[2].Control, records[3].Control} {
		require.Equal(t, change.Redecide, c.Action)
		require.Equal(t, []string{aService}, c.Services)
		require.Equal(t, ids[2+i], c.Letter)
		require.Equal(t, change.NewVersion(1, int64(6+i)), c.Version)
	}
	require.Equal(t, change.Resend, records[4].Control.Action)
	again, rest, err := change.Decode(records[4].Control.Change)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, sent, again, "the very change, to the byte")
	open, err := e.Store.ListLetters(t.Context(), store.LetterFilter{State: store.LetterOpen})
	require.NoError(t, err)
	require.Len(t, open, 5, "they are settled by the decision, not by being asked for")
}

// What cannot come back stays as it is and says why.
func TestLettersThatStay(t *testing.T) {
	e, log := newEnv(t)
	edited, _ := died(t, zService)
	edited.Payload = []byte(`{"service":"zest/all@log","entity":"B","op":"upsert","version":8,"key":"0","doc":{}}`)
	gone, _ := died(t, "gone/all@out")
	headers := []byte(`{"` + change.InboxHeader + `":"{\"k\":\"e\",\"s\":\"events\",\"op\":\"upsert\"}"}`)
	for want, l := range map[string]store.DeadLetter{
		"bad_json":         {Stage: store.StageIngest, Source: source, Payload: []byte(`{`)},
		"no_entity":        {Stage: store.StageIngest, Source: source, Payload: []byte(`{}`)},
		"bad_json: ":       {Stage: store.StageDecide, Source: source, Entity: "B", Payload: []byte(`{`), Headers: headers},
		"holds no event":   {Stage: store.StageDecide, Entity: "B", Payload: []byte(`x`)},
		"holds no change":  {Stage: store.StageDeliver, Service: aService, Payload: []byte(`x`)},
		"was edited":       edited,
		"no service gone/": gone,
		"is discarded":     {Stage: store.StageIngest, Source: source, Payload: []byte(`{"id":"A"}`), Code: "discarded"},
	} {
		id := addLetter(t, e, l)
		if l.Code == "discarded" {
			n, missing, err := operate.DiscardLetters(t.Context(), e.Store, operate.Letters{IDs: []int64{id, id, 12345}}, "me@here", "why", nil)
			require.NoError(t, err)
			require.Equal(t, []int{1, 1}, []int{n, missing})
		}
		all := replay(t, e, operate.Letters{IDs: []int64{id}}, false)
		require.Len(t, all, 1)
		require.Contains(t, all[0].Refused, want)
	}
	require.Contains(t, replay(t, e, operate.Letters{IDs: []int64{12345}}, false)[0].Refused, "no dead letter")
	require.Zero(t, log.calls)
}

// An event that was replayed and died again is as old as it was the first time.
func TestALetterDoesNotGetYounger(t *testing.T) {
	e, log := newEnv(t)
	head := `{"k":"e","s":"events","op":"delete","r":{"l":1,"v":77,"t":1000}}`
	headers, err := json.Marshal(map[string]string{change.InboxHeader: head})
	require.NoError(t, err)
	id := addLetter(t, e, store.DeadLetter{Stage: store.StageDecide, Source: source, Entity: "B", Version: change.NewVersion(1, 600), Headers: headers})
	require.Empty(t, replay(t, e, operate.Letters{IDs: []int64{id, id}}, false)[0].Refused)
	records := log.decoded(t)
	require.Len(t, records, 1, "named twice, brought back once")
	require.Equal(t, change.Delete, records[0].Event.Op)
	require.Equal(t, change.Version(77), records[0].Event.Replay.Version)
	require.EqualValues(t, 1000, records[0].Event.Replay.Died)
	require.Equal(t, id, records[0].Event.Replay.Letter)
}

// An edit of a letter that was edited meanwhile is refused.
func TestAnEditDoesNotTakeAnotherAway(t *testing.T) {
	e, _ := newEnv(t)
	id := addLetter(t, e, store.DeadLetter{Stage: store.StageIngest, Source: source, Payload: []byte("{")})
	seen, err := operate.Editable(t.Context(), e.Store, id)
	require.NoError(t, err)
	require.NoError(t, operate.EditLetter(t.Context(), e.Store, seen, []byte("{}"), 100, "me@here", "the first"))
	var no *operate.InvalidRequestError
	require.ErrorAs(t, operate.EditLetter(t.Context(), e.Store, seen, []byte("[]"), 100, "me@here", "the second"), &no)
	require.Contains(t, no.Reason, "another process")
	l, err := e.Store.Letter(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "{}", string(l.Payload))
}

// Pages of letters: all of them, once each, and as many as a limit says.
func TestManyLetters(t *testing.T) {
	e, log := newEnv(t)
	var letters []store.DeadLetter
	for i := range 250 {
		letters = append(letters, store.DeadLetter{
			Stage: store.StageIngest, Source: source, Payload: fmt.Appendf(nil, `{"id":"E%d"}`, i), DedupKey: fmt.Sprint(i), Code: []string{"a", "b"}[i%2],
		})
	}
	require.NoError(t, e.Store.(store.DeadLetters).AddLetters(t.Context(), letters))
	n, err := operate.CountLetters(t.Context(), e.Store, operate.Letters{Filter: store.LetterFilter{Code: "a"}})
	require.NoError(t, err)
	require.Equal(t, 125, n)
	require.Len(t, replay(t, e, operate.Letters{Filter: store.LetterFilter{Limit: 120}}, false), 120)
	require.Len(t, replay(t, e, operate.Letters{}, false), 250)
	seen := map[string]int{}
	for _, r := range log.decoded(t)[120:] {
		seen[r.Entity]++
	}
	require.Len(t, seen, 250)
	n, _, err = operate.DiscardLetters(t.Context(), e.Store, operate.Letters{Filter: store.LetterFilter{Code: "b"}}, "me@here", "", nil)
	require.NoError(t, err)
	require.Equal(t, 125, n)
	all := []operate.LetterReplay{{ID: 1}, {ID: 2}, {ID: 250}, {ID: 999}, {ID: 2, Refused: "it is discarded"}}
	require.NoError(t, e.FillSent(t.Context(), all))
	for i, want := range []store.LetterState{store.LetterOpen, store.LetterDiscarded, store.LetterDiscarded, "", ""} {
		require.Equal(t, want, all[i].State, i)
	}
}

// I9: the mistake that this catches: the change of a dead letter came back as
// base64, a third larger than when it was published, and one that was too large
// ended the replay of all others of its page.
func TestLargeLettersComeBackAndOneThatIsTooLargeKeepsNoOtherBack(t *testing.T) {
	e, log := newEnv(t)
	const largest = 8 << 20
	log.most = largest + 64<<10
	large := func(entity string, bytes int) int64 {
		c := change.Change{Service: zService, Entity: entity, Op: change.Upsert, Version: change.NewVersion(1, 7), Content: change.Content{1, 2}, Revision: 4, Time: time.UnixMilli(1_700_000_000_123).UTC()}
		c.Doc = []byte(`{"text":"` + strings.Repeat("x", bytes) + `"}`)
		c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
		headers, err := json.Marshal(deliver.LetterHeaders{Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content})
		require.NoError(t, err)
		return addLetter(t, e, store.DeadLetter{Stage: store.StageDeliver, Service: zService, Entity: entity, Version: c.Version, Payload: c.AppendRecord(nil), Headers: headers, Reason: entity})
	}
	ids := []int64{large("A", 7<<20), large("B", 1), large("C", 9<<20), large("D", 1), large("E", 7<<20)}
	got := replay(t, e, operate.Letters{IDs: ids}, false)
	refused := map[string]bool{}
	for i, r := range got {
		require.Equal(t, ids[i], r.ID)
		refused[r.Entity] = r.Refused != ""
	}
	require.Equal(t, map[string]bool{"A": false, "B": false, "C": true, "D": false, "E": false}, refused)
	asked := log.asked(t)
	require.Zero(t, asked["C"])
	for _, entity := range []string{"A", "B", "D", "E"} {
		require.Positive(t, asked[entity], entity)
	}
	for _, r := range log.decoded(t) {
		c, _, err := change.Decode(r.Control.Change)
		require.NoError(t, err)
		require.Equal(t, r.Entity, c.Entity)
	}
}
