package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// retained records what RetainClaims is asked for; its errors come one after
// the other, then none.
type retained struct {
	retention
	errs []error
	at   []time.Time
	age  []time.Duration
}

func (r *retained) RetainClaims(_ context.Context, keep time.Duration) (int, error) {
	r.at, r.age = append(r.at, time.Now()), append(r.age, keep)
	if len(r.errs) > 0 {
		err := r.errs[0]
		r.errs = r.errs[1:]
		return 0, err
	}
	return 1, nil
}

// Keys that are over their time go at the time of day that is configured, at
// the start of a process that was not there then, and soon again when the store
// did not do it.
func TestMonthsOfKeysAreDroppedAtNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands at midnight
		midnight := time.Now().UTC()
		r := &retained{errs: []error{errors.New("busy")}}
		cfg := &config.Config{}
		cfg.API.Idempotency.Retention = config.Duration(48 * time.Hour)
		cfg.API.Idempotency.DropAt = config.TimeOfDay(3*time.Hour + 30*time.Minute)
		reg := prometheus.NewRegistry()
		h := &retainer{store: r, cfg: cfg, log: slog.New(slog.DiscardHandler), dropped: newGauges(reg, nil).ledgerDropped}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Hour)
		defer cancel()
		for wait.Sleep(ctx, h.retainClaims(ctx)) {
		}
		night := midnight.Add(3*time.Hour + 30*time.Minute)
		require.Equal(t, []time.Time{midnight, midnight.Add(tidyAgain), night, night.AddDate(0, 0, 1)}, utc(r.at))
		for _, age := range r.age {
			require.Equal(t, 48*time.Hour, age)
		}
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "weir_ledger_partitions_dropped_total" {
				require.EqualValues(t, 3, f.GetMetric()[0].GetCounter().GetValue())
				return
			}
		}
		t.Error("the metric is not there")
	})
}

func utc(times []time.Time) (all []time.Time) {
	for _, t := range times {
		all = append(all, t.UTC())
	}
	return all
}

func TestUntilTimeOfDay(t *testing.T) {
	at := func(hour, minute int) time.Time {
		return time.Date(2026, 11, 30, hour, minute, 0, 0, time.FixedZone("east", 2*60*60))
	}
	require.Equal(t, time.Hour, untilTimeOfDay(at(4, 0), 3*time.Hour), "in UTC")
	require.Equal(t, 24*time.Hour, untilTimeOfDay(at(5, 0), 3*time.Hour), "never at once")
	require.Equal(t, 23*time.Hour+59*time.Minute, untilTimeOfDay(at(5, 1), 3*time.Hour))
}

// deleted is a store with one tombstone and the progress of a service.
type deleted struct {
	retention
	stone store.Tombstone
	rows  []store.Progress
	asked []change.Control
}

func (*deleted) Marks(context.Context) (map[int32]store.Mark, error) { return nil, nil }

// Append implements the inbox.
func (d *deleted) Append(_ context.Context, records []transport.Record) error {
	for _, r := range records {
		asked, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		if err != nil {
			return err
		}
		d.asked = append(d.asked, *asked.Control)
	}
	return nil
}

func (d *deleted) AllProgress(context.Context) ([]store.Progress, error) { return d.rows, nil }

func (*deleted) Inboxes(context.Context) ([]store.Inbox, error) {
	return []store.Inbox{{Generation: 1, Partitions: 1}, {Generation: 2, Partitions: 1}}, nil
}

func (d *deleted) Tombstones(_ context.Context, _ time.Time, after store.Tombstone, _ int) ([]store.Tombstone, error) {
	if after.Entity != "" {
		return nil, nil
	}
	return []store.Tombstone{d.stone}, nil
}

// I1: the tombstone of an entity stays until every service has heard of its deletion.
func TestTombstonesWaitForTheirServices(t *testing.T) {
	at := change.NewVersion
	for name, c := range map[string]struct {
		positions []change.Version // of services 1, 2 and so on
		below     change.Version   // what is asked for; 0 if nothing is
		lost      change.Version   // repaired for service 1, from here on
	}{
		"all have it":                {[]change.Version{at(1, 9), at(1, 8)}, at(1, 8), 0},
		"one is at it":               {[]change.Version{at(1, 9), at(1, 7)}, 0, 0},
		"one is far behind":          {[]change.Version{at(1, 9), 0}, 0, 0},
		"a new one has it all":       {[]change.Version{at(1, 9)}, at(1, 9), 0},
		"a later inbox":              {[]change.Version{at(2, 3), at(2, 4)}, at(2, 0), 0},
		"nothing was delivered":      {nil, 0, 0},
		"one more is not configured": {[]change.Version{at(1, 9), at(1, 8), at(1, 1)}, at(1, 8), 0},
		"its deletion was lost":      {[]change.Version{at(1, 9), at(1, 9)}, 0, at(1, 7)},
		"later changes were lost":    {[]change.Version{at(1, 9), at(1, 9)}, at(1, 8), at(1, 8)},
	} {
		d := &deleted{stone: store.Tombstone{Entity: "a", Version: at(1, 7)}}
		row := store.Progress{}
		for i, v := range c.positions {
			row.Positions = append(row.Positions, store.ServicePosition{Service: int32(i + 1), Version: v})
		}
		if c.lost > 0 {
			var lost core.Repair
			lost.Lose(c.lost, at(1, 9))
			row.Positions[0].Repair = lost.Encode()
		}
		d.rows = append(d.rows, row)
		active := &activation{}
		active.now.Store(newSettings(nil, &decide.Plan{Services: []decide.Service{{Number: 1}, {Number: 2}}}, nil))
		h := &retainer{store: d, cfg: &config.Config{}, active: active, append: d}
		require.NoError(t, h.purge(t.Context(), time.Now()), name)
		if c.below == 0 {
			require.Empty(t, d.asked, name)
			continue
		}
		require.Len(t, d.asked, 1, name)
		require.Equal(t, change.Purge, d.asked[0].Action, name)
		require.Equal(t, c.below, d.asked[0].Version, name)
	}
}
