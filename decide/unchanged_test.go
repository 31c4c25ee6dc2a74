package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

// A column that an update left unchanged keeps its stored value; one that is not stored makes
// the update a dead letter, and the document stays as it is.
func TestUnchangedColumnsAreFilledFromTheStoredDocument(t *testing.T) {
	s := NewSimulator(freshPlan(t, "plan", -1))
	apply := func(entity, payload string, unchanged ...string) string {
		r := change.Record{Entity: entity, Event: &change.Event{
			Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload), Unchanged: unchanged,
		}}
		outcome, err := s.Apply(r, time.Unix(1000, 0))
		require.NoError(t, err)
		if len(outcome.Letters) > 0 {
			return "dead letter " + outcome.Letters[0].Code
		}
		in, err := s.plan.Inspect(s.entities[entity])
		require.NoError(t, err)
		return string(in.Docs["registry"].Raw())
	}
	require.JSONEq(t, `{"id":1,"text":"long","more":2}`, apply("B", `{"id":1,"text":"long","more":2}`))
	require.JSONEq(t, `{"id":1,"text":"long","more":3}`, apply("B", `{"id":1,"text":"placeholder","more":3}`, "text"))
	require.JSONEq(t, `{"id":1,"text":"new","more":3}`, apply("B", `{"id":1,"text":"new","more":3}`))
	require.Equal(t, "dead letter unavailable", apply("B", `{"id":1,"text":"new","more":4,"photo":"placeholder"}`, "photo"))
	require.Equal(t, "dead letter unavailable", apply("C", `{"id":1,"text":"placeholder"}`, "text"))
	require.Equal(t, "dead letter unavailable", apply("B", `{"id":1,"text":"placeholder","more":5}`, "text"), "the stored document is not the one before it")
	require.JSONEq(t, `{"id":1,"text":"newer","more":6}`, apply("B", `{"id":1,"text":"newer","more":6}`))
	require.JSONEq(t, `{"id":1,"text":"newer","more":7}`, apply("B", `{"id":1,"text":"placeholder","more":7}`, "text"))
}

// I5: the changes of one transaction have one offset and are ordered by their index.
func TestFenceOrdersTheChangesOfATransaction(t *testing.T) {
	f := fence{}
	see := func(offset, index int64) staleReason {
		e := &change.Event{Origin: change.Origin{Source: "shop", Topic: "log", Offset: offset, Index: index}}
		reason := f.check(e)
		if reason == fresh {
			f.note(e, change.NewVersion(1, offset), time.UnixMilli(1))
		}
		return reason
	}
	for _, c := range []struct {
		offset, index int64
		want          staleReason
	}{
		{100, 0, fresh}, {100, 0, stalePosition}, {100, 1, fresh}, {100, 3, fresh}, {100, 2, stalePosition},
		{99, 9, stalePosition}, {101, 0, fresh}, {100, 4, stalePosition}, {101, 1, fresh},
	} {
		require.Equal(t, c.want, see(c.offset, c.index), "%+v", c)
	}
	again := fence{}
	require.NoError(t, new(fenceRoom).decode(again, f.encode()))
	require.Equal(t, f["shop"].Positions, again["shop"].Positions)
	require.Equal(t, []position{{"log", 0, 101, 1}}, again["shop"].Positions)
}
