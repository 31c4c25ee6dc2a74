package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/wait"
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
		cfg.API.Keys.Retention = config.Duration(48 * time.Hour)
		cfg.API.Keys.DropAt = config.TimeOfDay(3*time.Hour + 30*time.Minute)
		reg := prometheus.NewRegistry()
		h := &housekeeper{store: r, cfg: cfg, log: slog.New(slog.DiscardHandler), dropped: newGauges(reg).ledgerDropped}
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
