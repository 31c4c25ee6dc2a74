package operate_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// knowing is a store with one partition of the inbox, in which services are at positions.
type knowing struct {
	store.Reports
	positions map[int32]int64 // by number
	reports   map[string][]any
	pauses    []store.Pause
}

func (k *knowing) Pauses(context.Context) ([]store.Pause, error) { return k.pauses, nil }

func (k *knowing) Marks(context.Context) (map[int32]store.Mark, error) {
	return map[int32]store.Mark{0: {LastTo: change.NewVersion(1, 100)}}, nil
}

func (k *knowing) AllProgress(context.Context) ([]store.Progress, error) {
	row := store.Progress{}
	for n := range int32(len(k.positions)) {
		row.Positions = append(row.Positions, store.ServicePosition{Service: n + 1, Version: change.NewVersion(1, k.positions[n+1])})
	}
	return []store.Progress{row}, nil
}

func (k *knowing) Inboxes(context.Context) ([]store.Inbox, error) {
	return []store.Inbox{{Generation: 1, Partitions: 1}}, nil
}

func (k *knowing) CountLetters(context.Context) (map[store.Stage]int64, error) {
	return map[store.Stage]int64{store.StageDeliver: 2, store.StageIngest: 0}, nil
}

func (k *knowing) ListLetters(_ context.Context, f store.LetterFilter) ([]store.DeadLetter, error) {
	if f.State != store.LetterRetrying {
		return nil, errors.New("not asked for")
	}
	return []store.DeadLetter{
		{Service: "c/p@many", Entity: "B-7", Attempts: 3, Reason: "502: come back later", Created: letterTime.Add(time.Second), NextTry: letterTime.Add(time.Minute)},
		{Service: "c/p@many", Entity: "B-7", Created: letterTime},
	}, nil
}

func (k *knowing) GroupLetters(context.Context, store.LetterFilter, int) ([]store.LetterGroup, error) {
	return []store.LetterGroup{{Stage: store.StageDeliver, Service: "c/p@few", Code: "refused", Reason: "422: no such room", Letters: 2, First: letterTime.Add(2 * time.Second)}}, nil
}

var letterTime = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func (k *knowing) KnownServices(context.Context) (map[string]int32, error) {
	return map[string]int32{"c/p@few": 1, "c/p@many": 2, "c/p@none": 3, "c/p@paused": 4, "c/p@unwell": 5}, nil
}

func (k *knowing) ListReports(_ context.Context, kind string) ([]store.Report, error) {
	var all []store.Report
	for _, x := range k.reports[kind] {
		body, err := json.Marshal(x)
		if err != nil {
			return nil, err
		}
		all = append(all, store.Report{Kind: kind, Body: body})
	}
	return all, nil
}

// Where no process answers, the store names the lagging services, the furthest first, since
// when and why, and has the last reports of the processes.
func TestStatusOfAStore(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	services := []string{"c/p@few", "c/p@many", "c/p@new", "c/p@none", "c/p@paused", "c/p@unwell"}
	unwell := []operate.ServiceHealth{{Service: "c/p@unwell", Level: operate.LevelDown, State: deliver.StateRetrying, Since: now.Add(-3 * time.Hour), Error: "refused", Do: "bring it back"}}
	process := operate.Process{
		Name: "a:1", Seen: now.Add(-time.Hour), LastDecision: now.Add(-2 * time.Hour),
		Health: operate.Health{Level: operate.LevelDegraded, Services: unwell},
	}
	k := &knowing{positions: map[int32]int64{1: 95, 2: 10, 3: 100, 4: 100, 5: 50}, reports: map[string][]any{
		"backfill":          {map[string]any{"fingerprint": []byte{1}, "due": now.Add(-time.Second)}},
		operate.ProcessKind: {process},
	}, pauses: []store.Pause{{Service: "c/p@paused", Since: now.Add(-time.Minute), Actor: "ann@here"}}}
	look := func() operate.Status {
		s, err := operate.StatusOfStore(t.Context(), k, services, errors.New("nobody listens"), func(p *operate.Process) bool { return p.Alive(now) }, now)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"deliver": 2}, s.Letters)
		require.Equal(t, "nobody listens", s.Verdict())
		require.Equal(t, process.LastDecision, s.LastDecision)
		return s
	}
	s := look()
	require.Equal(t, operate.LevelDown, s.Level, "its last report is an hour old")
	require.Equal(t, now.Add(-time.Hour), s.Since)
	silent := now.Add(-time.Hour)
	require.Equal(t, []operate.Item{
		{What: "c/p@unwell", Level: operate.LevelDown, AtMost: true, Queued: 50, Since: unwell[0].Since, Why: "no process delivers it; when one did: refused"},
		{What: "c/p@many", Level: operate.LevelDown, AtMost: true, Queued: 90, Since: silent, Why: "no process delivers it"},
		{What: "c/p@few", Level: operate.LevelDown, AtMost: true, Queued: 5, Since: silent, Why: "no process delivers it"},
		{What: "c/p@paused", Level: operate.LevelDegraded, Since: now.Add(-time.Minute), Why: "paused by ann@here", Do: "when its customer is ready: weir resume c/p@paused; queued changes are kept"},
		{What: "configuration", Level: operate.LevelDegraded, Since: now.Add(-time.Second), Why: "entities without an event since it changed are as the earlier one made them", Do: "weir replay --outdated (weir plan shows its effect first)"},
		{What: "c/p@many, entity B-7", Level: operate.LevelDegraded, Queued: 1, Since: now.Add(time.Second), NextTry: now.Add(time.Minute), Why: "failed 3 times: 502: come back later", Do: "correct what the target's answer names, or ask its operator; retried automatically, and a dead letter after retry.for (weir resume c/p@many --now tries at once)"},
		{What: "dead letters of c/p@few", Level: operate.LevelDegraded, Since: now.Add(2 * time.Second), Why: "2 open, refused, for instance: 422: no such room", Do: "correct what the target's answer names, or ask its operator; then weir dlq replay --all --yes --stage deliver --service c/p@few --code refused (weir dlq list --stage deliver --service c/p@few --code refused shows them)"},
	}, s.Items)

	process.Seen = now.Add(-5 * time.Second)
	k.reports[operate.ProcessKind] = []any{process, operate.Process{Name: "b:2", Seen: now, Stopped: true, Health: operate.Health{Level: operate.LevelDown}}}
	s = look()
	require.Equal(t, operate.LevelDegraded, s.Level, "what the one says that is alive")
	require.Equal(t, operate.Item{What: "c/p@unwell", Level: operate.LevelDown, AtMost: true, Queued: 50, Since: unwell[0].Since, Why: "refused", Do: "bring it back"}, s.Items[0])
	require.Contains(t, s.Items, operate.Item{What: "c/p@many", Level: operate.LevelOK, AtMost: true, Queued: 90, Why: "changes are being delivered"})
}
