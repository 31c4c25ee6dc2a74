package sinktest

import (
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/sinks"
)

func TestCompliantSinks(t *testing.T) {
	for _, kind := range []sinks.Kind{sinks.State, sinks.Log} {
		t.Run(string(kind), func(t *testing.T) { Run(t, newMemory(kind, faults{}).target()) })
	}
}

// recorder is a testing.TB that takes a check's failure instead of failing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Cleanup(f func())    { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(string, ...any) {}
func (r *recorder) FailNow()            { runtime.Goexit() }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

// failures runs one check on a goroutine that FailNow may end.
func failures(t *testing.T, c check, s *suite) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		c.run(r, s)
	}()
	<-done
	return r.failures
}

// caught returns the names of the checks that fail for a kind with a fault. The
// random sequences are left out: rapid would keep their failures as files.
func caught(t *testing.T, kind sinks.Kind, f faults) (names []string) {
	target := newMemory(kind, f).target()
	s := newSuite(target)
	for _, c := range checks() {
		if c.name != randomName && c.applies(&target) && len(failures(t, c, s)) > 0 {
			names = append(names, c.name)
		}
	}
	return names
}

func TestBrokenSinksAreCaught(t *testing.T) {
	state, log := sinks.State, sinks.Log
	cases := []struct {
		name   string
		kind   sinks.Kind
		faults faults
		by     string // one check that must be among those that fail
	}{
		{"no version guard", state, faults{noVersionGuard: true}, "I5 older version after newer changes nothing"},
		{"no tombstone", state, faults{noTombstone: true}, "I5 older upsert does not resurrect a retracted entity"},
		{"no key check", log, faults{noKeyCheck: true}, "I2 same change twice is one effect"},
		{"keys in memory only", log, faults{keysInMemory: true}, "I2 same batch after a crash before the confirm is one effect"},
		{"version taken for key", log, faults{versionAsKey: true}, "I9 late dead letter takes effect once with its own version"},
		{"drops a row", state, faults{dropsRow: true}, "I1 one entity many times in a batch, in order"},
		{"drops a row", log, faults{dropsRow: true}, "I1 one entity many times in a batch, in order"},
		{"back to front", log, faults{unordered: true}, "I1 one entity many times in a batch, in order"},
		{"fails the batch for one", state, faults{failsBatch: true}, "I9 a bad change fails alone"},
		{"fails the batch for one", log, faults{failsBatch: true}, "I9 a bad change fails alone"},
		{"hides a bad change", log, faults{hidesBad: true}, "I9 a bad change fails alone"},
		{"calls a refusal a retry", state, faults{badIsRetry: true}, "I9 a batch of bad changes only"},
		{"calls an outage a refusal", log, faults{downIsReject: true}, "outage is a retry, then the same sink goes on"},
		{"calls an outage a refusal", state, faults{downIsReject: true}, "open during an outage is a retry, then opens"},
		{"calls a refused service a retry", state, faults{refusalIsRetry: true}, "refused as a whole is a pause"},
		{"leaks payload", state, faults{leaksPayload: true}, "I9 a bad change fails alone"},
		{"folds ids", state, faults{foldsIDs: true}, "odd entity ids stay apart"},
		{"counts a cancellation", log, faults{ignoresCancel: true}, "cancelled context returns soon, a repeat makes it whole"},
		{"refuses an empty batch", log, faults{failsOnEmpty: true}, "I1 empty batch changes nothing"},
	}
	tried := map[string]bool{}
	for _, tc := range cases {
		t.Run(fmt.Sprintf("%s/%s", tc.kind, tc.name), func(t *testing.T) {
			require.Contains(t, caught(t, tc.kind, tc.faults), tc.by)
		})
		v := reflect.ValueOf(tc.faults)
		for i := range v.NumField() {
			if v.Field(i).Bool() {
				tried[v.Type().Field(i).Name] = true
			}
		}
	}
	require.Len(t, tried, reflect.TypeFor[faults]().NumField(), "every fault has a case")
}

// The random sequences alone, too, must find the faults that they can meet.
func TestRandomSequencesCatchBrokenSinks(t *testing.T) {
	cases := []struct {
		name   string
		kind   sinks.Kind
		faults faults
	}{
		{"no version guard", sinks.State, faults{noVersionGuard: true}},
		{"no tombstone", sinks.State, faults{noTombstone: true}},
		{"no key check", sinks.Log, faults{noKeyCheck: true}},
		{"keys in memory only", sinks.Log, faults{keysInMemory: true}},
		{"drops a row", sinks.State, faults{dropsRow: true}},
		{"back to front", sinks.Log, faults{unordered: true}},
	}
	for _, tc := range cases {
		t.Run(fmt.Sprintf("%s/%s", tc.kind, tc.name), func(t *testing.T) {
			f := newSuite(newMemory(tc.kind, tc.faults).target()).open(t)
			for seed := range 100 {
				f.model = newModel(tc.kind)
				if len(f.play(sequences().Example(seed))) > 0 {
					return
				}
			}
			require.Fail(t, "100 sequences found nothing")
		})
	}
}
