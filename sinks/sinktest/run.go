package sinktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

const (
	// writeTimeout is far above the time of a Write to a healthy target.
	writeTimeout = 60 * time.Second
	// cancelTimeout is the longest that "soon" may be after a cancellation, on a
	// machine that does other things: it finds a Write that hangs.
	cancelTimeout = 30 * time.Second
	// recoveryTimeout is how long a sink may take to find a returned server.
	recoveryTimeout = 60 * time.Second
	// retryInterval is between two Writes of the same changes.
	retryInterval = 100 * time.Millisecond
)

// Run runs every check that applies to the target, each as a subtest.
func Run(t *testing.T, target Target) {
	s := newSuite(target)
	for _, c := range checks() {
		if c.applies(&target) {
			t.Run(c.name, func(t *testing.T) { c.run(t, s) })
		}
	}
}

// suite is one Run: the target and the source of fresh entities and versions.
type suite struct {
	Target
	token  string
	names  int
	offset int64
}

func newSuite(target Target) *suite {
	return &suite{Target: target, token: rand.Text()[:8]}
}

// entity returns a name that no other check has used on this target.
func (s *suite) entity(label string) string {
	s.names++
	return fmt.Sprintf("%s-%d-%s", s.token, s.names, label)
}

// version returns the next version, higher than all before.
func (s *suite) version() change.Version {
	s.offset++
	return change.NewVersion(1, s.offset)
}

// upsert makes the next change of an entity, with text in its document.
func (s *suite) upsert(entity, text string) change.Change {
	v := s.version()
	return Change(s.service(), entity, v, s.doc(int(v.Offset()), text))
}

func (s *suite) retract(entity string) change.Change {
	return Change(s.service(), entity, s.version(), nil)
}

// fixture is one check's sink and model.
type fixture struct {
	*suite
	t     testing.TB
	sink  sinks.Sink
	model *model
}

// open starts a check with an open sink.
func (s *suite) open(t testing.TB) *fixture {
	t.Helper()
	f := &fixture{suite: s, t: t, model: newModel(s.Kind)}
	f.reopen()
	t.Cleanup(f.close)
	return f
}

// reopen closes the sink and opens another one on the same target, as after a
// crash: a sink holds nothing between Writes, so Close adds nothing.
func (f *fixture) reopen() {
	f.t.Helper()
	f.close()
	f.sink = f.New(f.t)
	ctx, cancel := context.WithTimeout(f.t.Context(), writeTimeout)
	defer cancel()
	require.NoError(f.t, f.sink.Open(ctx), "Open")
}

func (f *fixture) close() {
	f.t.Helper()
	if f.sink != nil {
		require.NoError(f.t, f.sink.Close(), "Close")
		f.sink = nil
	}
}

// send writes changes in as many Writes as the traits ask for and returns the
// failures by index in changes.
func (f *fixture) send(ctx context.Context, changes []change.Change) map[int]error {
	f.t.Helper()
	failed := map[int]error{}
	for base := 0; base < len(changes); {
		n := f.fits(changes[base:])
		batch := changes[base : base+n]
		before := slices.Clone(batch)
		err := f.sink.Write(ctx, batch)
		require.Equal(f.t, before, batch, "Write changed its batch")
		var be *sinks.BatchError
		switch {
		case errors.As(err, &be):
			require.NotEmpty(f.t, be.Failed, "a BatchError that names no change")
			for i, e := range be.Failed {
				require.True(f.t, i >= 0 && i < n, "BatchError names change %d of %d", i, n)
				require.Error(f.t, e, "BatchError holds nil for change %d", i)
				failed[base+i] = e
			}
		case err != nil:
			for i := range n {
				failed[base+i] = err
			}
		}
		base += n
	}
	return failed
}

// fits is how many of changes one Write takes, at least 1.
func (f *fixture) fits(changes []change.Change) int {
	traits := f.sink.Traits()
	bytes := 0
	for i := range changes {
		bytes += len(changes[i].Doc)
		if i > 0 && (i >= traits.MaxBatch || traits.MaxBytes > 0 && bytes > traits.MaxBytes) {
			return i
		}
	}
	return len(changes)
}

// write sends changes that must all succeed, and takes them into the model.
func (f *fixture) write(changes ...change.Change) {
	f.t.Helper()
	for i, err := range f.settle(changes) {
		require.NoError(f.t, err, "Write of change %d of %d", i, len(changes))
	}
	f.model.apply(changes...)
}

// settle sends changes, again while a busy target has no time for one of them,
// and returns the failures by index.
func (f *fixture) settle(changes []change.Change) map[int]error {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), writeTimeout)
	defer cancel()
	for {
		failed := f.send(ctx, changes)
		again := false
		for _, err := range failed {
			again = again || f.Busy && sinks.Classify(err).Class == sinks.Retry
		}
		if !again || ctx.Err() != nil {
			return failed
		}
		<-time.After(retryInterval)
	}
}

// verify compares the target with the model.
func (f *fixture) verify() {
	f.t.Helper()
	require.Empty(f.t, f.model.differences(f.t, &f.Target), "the target does not hold what was written")
}

// recover writes changes again and again until all took effect, as deliver
// does with its back-off, and takes them into the model. Every failure on the
// way must be one that is worth a retry.
func (f *fixture) recover(changes ...change.Change) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), recoveryTimeout)
	defer cancel()
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		failed := f.send(ctx, changes)
		if len(failed) == 0 {
			f.model.apply(changes...)
			return
		}
		for i, err := range failed {
			require.Equal(f.t, sinks.Retry, sinks.Classify(err).Class, "change %d: %v", i, err)
		}
		select {
		case <-ctx.Done():
			require.Fail(f.t, "the sink does not find its target again", "last failures: %v", failed)
		case <-tick.C:
		}
	}
}
