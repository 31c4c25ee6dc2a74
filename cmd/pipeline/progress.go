package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/pipeline"
)

// The progress line is written to standard error if that is a terminal. It is overwritten in
// place, and removed before the result.

// progressOf shows the progress of an action on a terminal, at most some
// times a second: a bar when the end is known, else a number. stop takes it away,
// and may be called twice. show is nil without a terminal.
func (c *console) progressOf() (show func(done, total int64), stop func()) {
	if c.json || !isTerminal(c.err) {
		return nil, func() {}
	}
	const width = 30
	var last time.Time
	var before int64
	start := time.Now()
	return func(done, total int64) {
			now := time.Now()
			if done < before { // something else begins
				start = now
			}
			before = done
			if now.Sub(last) < 200*time.Millisecond && done != total {
				return
			}
			last = now
			perSecond := float64(done) / max(0.001, now.Sub(start).Seconds())
			rate := humanize.Comma(int64(perSecond))
			if total <= 0 {
				fmt.Fprintf(c.err, "\r\033[K%s (%s/s)", humanize.Comma(done), rate)
				return
			}
			total = max(done, total) // it may have been an estimate
			full := int(width * done / total)
			fmt.Fprintf(c.err, "\r\033[K[%s%s] %s of %s (%s/s%s)", strings.Repeat("#", full), strings.Repeat(".", width-full),
				humanize.Comma(done), humanize.Comma(total), rate, remaining(float64(total-done), perSecond))
		}, func() {
			if !last.IsZero() {
				fmt.Fprint(c.err, "\r\033[K")
				last = time.Time{}
			}
		}
}

// remaining returns how long the rest takes at a rate. It is empty while the rate is 0.
func remaining(rest, perSecond float64) string {
	if !(rest > 0 && perSecond > 0) { // of no time at all a rate is no number
		return ""
	}
	left := time.Duration(rest / perSecond * float64(time.Second))
	return ", " + max(time.Second, left.Round(time.Second)).String() + " left"
}

// afterProgress removes the progress line before a result is written.
type afterProgress struct {
	io.Writer
	stop func()
}

func (w afterProgress) Write(b []byte) (int, error) {
	w.stop()
	return w.Writer.Write(b)
}

// runProgress shows the progress of a run until the returned function is called; with
// untilIdle also the remaining time. Without a terminal it reports blocked waits only.
func runProgress(a *app, reg *prometheus.Registry, waits func() []pipeline.Wait, untilIdle bool) (stop func()) {
	if a.json || !isTerminal(a.err) {
		return reportWaits(a, waits)
	}
	var looks []*snapshot.Snapshot // of the last seconds, the oldest first
	var last int64
	start := time.Now()
	end := every(time.Second, func() {
		s, err := snapshot.Summarize(reg)
		if err != nil {
			return
		}
		sum, left := s.Sum(), ""
		if now, err := snapshot.Take(reg, time.Now()); untilIdle && err == nil {
			looks = append(looks[max(0, len(looks)+1-rateWindow):], now)
			left = timeLeft(looks[0], now, waits())
		}
		fmt.Fprintf(a.err, "\r\033[K%s (%s/s%s) · %s pruned · %s held back · %s delivered", english.Plural(int(s.Read), "event", "events"),
			humanize.Comma(s.Read-last), left, humanize.Comma(sum.Pruned), humanize.Comma(sum.Held), humanize.Comma(sum.Delivered))
		if text := pipeline.WaitText(blockedWaits(waits())); text != "" && time.Since(start) >= waitsAfter {
			fmt.Fprint(a.err, " · waiting: ", text)
		}
		last = s.Read
	})
	return func() { end(); fmt.Fprint(a.err, "\r\033[K") }
}

// every calls f periodically on a goroutine of its own, until the returned function is called.
func every(period time.Duration, f func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// rateWindow is the number of samples, a second apart, over which rates are taken: the
// backlog is counted every 5 seconds.
const rateWindow = 15

// timeLeft estimates the remaining time at the rate between two snapshots: first of the
// undecided records, then of the undelivered changes. Empty while it is unknown: without
// progress, and until every source has reported its backlog.
func timeLeft(before, now *snapshot.Snapshot, waits []pipeline.Wait) string {
	for _, w := range waits {
		if name, is := strings.CutPrefix(w.For, "source "); is && !now.Source(name).LagKnown {
			return ""
		}
	}
	seconds := now.At.Sub(before.At).Seconds()
	if waiting := now.SourceLag + now.InboxLag; waiting > 0 {
		return remaining(waiting, (snapshot.Total(now.Events)-snapshot.Total(before.Events))/seconds)
	}
	return remaining(now.Pending, (before.Pending-now.Pending)/seconds)
}

// reportWaits writes a line whenever a run is blocked by something else. Waits that end without
// help are not reported.
func reportWaits(a *app, waits func() []pipeline.Wait) (stop func()) {
	said := ""
	return every(waitsAfter, func() {
		if text := pipeline.WaitText(blockedWaits(waits())); text != said {
			if said = text; text != "" {
				fmt.Fprintln(a.err, "waiting:", text)
			}
		}
	})
}

// waitsAfter is the delay before a run reports its blocked waits.
const waitsAfter = 2 * time.Second

// blockedWaits returns the waits that need an operator.
func blockedWaits(waits []pipeline.Wait) []pipeline.Wait {
	return slices.DeleteFunc(slices.Clone(waits), func(w pipeline.Wait) bool { return w.Because == "" })
}
