package pipeline

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// An outage is a line of the status from its first check on, and three kinds of log lines.
func TestAnOutageIsShownAtOnceAndLoggedOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	o := outages{log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	refused := errors.New("connection refused")
	for n := range 25 { // two minutes
		o.note("gate", refused, "bring it back", now.Add(time.Duration(n)*watchPeriod))
		at := now.Add(time.Duration(n+1) * watchPeriod)
		require.Equal(t, []operate.Item{{What: "gate", Level: operate.LevelDegraded, Since: now, NextTry: at, Why: "connection refused", Do: "bring it back"}}, o.items())
	}
	o.note("store", refused, "", now)
	require.Len(t, o.items(), 1, "the store's outage is that of the process")
	began, next := o.times("store")
	require.Equal(t, []time.Time{now, now.Add(watchPeriod)}, []time.Time{began, next})
	o.note("source a", refused, "", now)
	o.note("source b", refused, "", now)
	o.end("source ", map[string]bool{"source a": true}, now)
	o.note("gate", nil, "", now.Add(3*time.Minute))
	require.Len(t, o.items(), 1)
	count := func(event, of string) (n int) {
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "event="+event+" ") && strings.Contains(line, of) {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, count("dependency.unreachable", "dependency=gate"))
	require.Equal(t, 2, count("dependency.still_unreachable", "dependency=gate"))
	require.Equal(t, 1, count("dependency.reachable", "dependency=gate"))
	require.Equal(t, 1, count("dependency.reachable", `dependency="source b"`))
}

// Down has a since: that of the reason.
func TestABlockageKeepsItsBeginning(t *testing.T) {
	var b blockage
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	require.Equal(t, now, b.note("store", now))
	require.Equal(t, now, b.note("store", now.Add(time.Minute)))
	require.Equal(t, now.Add(2*time.Minute), b.note("disk", now.Add(2*time.Minute)))
}

// Topics that take no record, and brokers that do not answer, block a process when that
// lasts longer than an election.
func TestTopicsAndBrokersThatAreAwayForLong(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fault, away := &transport.TopicFault{Topic: "inbox", Missing: true}, errors.New("connection refused")
	for name, found := range map[string]struct {
		faults []*transport.TopicFault
		away   error
		want   error
	}{"topic": {[]*transport.TopicFault{fault}, nil, fault}, "brokers": {nil, away, away}} {
		m := &monitor{outages: outages{log: slog.New(slog.DiscardHandler)}}
		m.noteTopics(nil, nil, begin)
		m.noteTopics(found.faults, found.away, begin.Add(time.Hour))
		m.noteTopics(found.faults, found.away, begin.Add(time.Hour+topicPatience-time.Second))
		require.NoError(t, m.topicsBlocked(begin.Add(time.Hour+topicPatience-time.Second)), name)
		require.ErrorIs(t, m.topicsBlocked(begin.Add(time.Hour+topicPatience)), found.want, name)
		m.noteTopics(nil, nil, begin.Add(2*time.Hour))
		require.NoError(t, m.topicsBlocked(begin.Add(2*time.Hour)), name)
	}
}
