package simulation

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var (
	seeds   = flag.Int("sim.seeds", enough, "schedules to run")
	seed    = flag.Uint64("sim.seed", 0, "run this schedule alone, with its trace")
	from    = flag.Uint64("sim.from", 1, "the first seed")
	stride  = flag.Int("sim.stride", 1, "from one seed to the next")
	summary = flag.String("sim.summary", "", "run in this process alone, and write what was done into this file")
	detect  = flag.Int("sim.detect", 0, "run so many schedules under each broken rule, and say how many show it")
)

// One processor: goroutines that wake at the same virtual instant then run in
// the same order nearly always, and a schedule costs less. Schedules run in
// parallel in processes of their own. They make much garbage and keep little.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*seeds = min(*seeds, 500)
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(800)
	goleak.VerifyTestMain(m)
}

func fixture(t *testing.T) *Fixture {
	t.Helper()
	f, err := NewFixture()
	require.NoError(t, err)
	return f
}

// together is how many schedules share a bubble.
const together = 64

// simulate runs schedules in virtual time until there is no next one, or each
// has seen enough.
func simulate(t *testing.T, f *Fixture, rules Rules, traced bool, next func() (seed uint64, more bool), each func(Report) (more bool)) {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // -cpu says otherwise
	var seed uint64
	defer func() {
		if p := recover(); p != nil {
			panic(fmt.Sprintf("seed %d: %v", seed, p))
		}
	}()
	for more := true; more; {
		synctest.Test(t, func(*testing.T) {
			for n := 0; n < together && more; n++ {
				if seed, more = next(); more {
					more = each(f.Run(seed, rules, traced))
				}
			}
		})
	}
}

// once runs a single schedule.
func once(t *testing.T, f *Fixture, seed uint64, traced bool) (report Report) {
	t.Helper()
	simulate(t, f, Rules{}, traced, inARow(seed, 1), func(r Report) bool { report = r; return false })
	return report
}

// inARow returns n seeds, one after the other.
func inARow(first uint64, n int) func() (uint64, bool) {
	next, end := first, first+uint64(n)
	return func() (uint64, bool) { next++; return next - 1, next <= end }
}

// done are the counts of a number of schedules.
type done struct {
	Schedules int
	Processor time.Duration // its time
	Total     map[string]int
}

// Schedules that showed faults of the product: a change above the mark whose transaction had not
// ended, a table whose mark a restored store lacked (twice), a retrying change that it lacked, and
// deletions from before the rows of a table (thrice).
func TestFormerFaults(t *testing.T) {
	f := fixture(t)
	for _, seed := range []uint64{200927, 241199, 243852, 229404, 377, 7703, 15790} {
		require.NoError(t, once(t, f, seed, false).Violation, "seed %d", seed)
	}
}

func TestSchedules(t *testing.T) {
	switch {
	case *seed != 0:
		r := once(t, fixture(t), *seed, true)
		t.Logf("%d events, %d records, %d changes, faults %v\n%s", r.Events, r.Records, r.Changes, r.Faults, strings.Join(r.Lines, "\n"))
		require.NoError(t, r.Violation)
	case *summary != "":
		text, err := json.Marshal(portion(t))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*summary, text, 0o600))
	default:
		all(t)
	}
}

// enough schedules have every fault.
const enough = 800

// portion runs this process's share of the seeds.
func portion(t *testing.T) done {
	d := done{Total: map[string]int{}}
	f := fixture(t)
	used := processor()
	next := func() (uint64, bool) {
		i := *stride * d.Schedules
		return *from + uint64(i), i < *seeds
	}
	simulate(t, f, Rules{}, false, next, func(r Report) bool {
		d.Schedules++
		if r.Violation != nil {
			t.Errorf("seed %d: %v", r.Seed, r.Violation)
		}
		d.Total["events"] += r.Events
		d.Total["changes"] += r.Changes
		for name, n := range r.Faults {
			d.Total[name] += n
		}
		return true
	})
	d.Processor = processor() - used
	return d
}

// all runs the seeds in as many processes as there are processors.
func all(t *testing.T) {
	dir, workers := t.TempDir(), runtime.NumCPU()
	whole := done{Total: map[string]int{}} // guarded by mu
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for i := range workers {
		wg.Go(func() {
			d, err := child(t, filepath.Join(dir, strconv.Itoa(i)), *from+uint64(i), workers)
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			whole.Schedules += d.Schedules
			whole.Processor += d.Processor
			for name, n := range d.Total {
				whole.Total[name] += n
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	took := time.Since(start)
	t.Logf("%d schedules in %v, %.0f per second; %v of processor time each: %v", whole.Schedules, took.Round(time.Millisecond),
		float64(whole.Schedules)/took.Seconds(), (whole.Processor / time.Duration(max(whole.Schedules, 1))).Round(time.Microsecond), whole.Total)
	if whole.Schedules < enough {
		return
	}
	// A simulation in which nothing goes wrong proves nothing.
	for _, name := range []string{"events", "changes", "crash", "freeze", "restart", "restore", "rebalance",
		"purge", "purged", "decided from memory", "take over done, answer lost", "decide done, answer lost", "decide lost, answer too", "decide fenced for nothing", "swap progress done, answer lost", "take progress done, answer lost", "read frames fails", "frames come slowly",
		"connection breaks", "database restarts", "database fails over", "slot moved", "truncate",
		"table out of the publication", "another type", "files changed", // of the others 800 schedules have few
		"retention", "change too large", "generation", "two owners in work", "deploy", "reload", "superseded", "batch cut", "frame cut", "partition takes nothing", "producer's client replaced", "gap", "fell behind", "caught up", "outage", "deliver begins anew", "dies behind a write",
		"append lost", "append cut off", "append done, answer lost", "acknowledgement lost", "other borders",
		"sink timed out, effect", "sink timed out, some effect", "sink timed out, no effect", "sink pauses", "rate", "rate of all", "rest", "refresh", "refresh repeated"} {
		assert.Positive(t, whole.Total[name], name)
	}
}

// child runs a portion in a process of its own: this test once more.
func child(t *testing.T, file string, first uint64, stride int) (d done, err error) {
	//nolint:gosec // the program is this one, and its arguments are numbers and a name of ours
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSchedules$", "-test.timeout=0", "-sim.summary="+file,
		"-sim.seeds="+strconv.Itoa(*seeds), "-sim.from="+strconv.FormatUint(first, 10), "-sim.stride="+strconv.Itoa(stride))
	if out, err := cmd.CombinedOutput(); err != nil {
		return d, fmt.Errorf("%w:\n%s", err, out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(text, &d)
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The checker finds every rule that is broken in what surrounds the product.
func TestBrokenRulesAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("searches for a while")
	}
	f := fixture(t)
	type broken struct {
		name  string
		rules Rules
	}
	rules := []broken{
		{"the store does not check watermarks", Rules{NoWatermark: true}},
		{"an append to the inbox is acknowledged before it took effect", Rules{MarkerFirst: true}},
		{"the log sink does not skip known keys", Rules{NoKeyCheck: true}},
		{"the state sink does not compare versions", Rules{NoVersionCheck: true}},
		{"messages are acknowledged at hand-out", Rules{AckFirst: true}},
		{"the watermark moves without the decision", Rules{SplitDecision: true}},
		{"refusals are lost", Rules{ForgetsRefusals: true}},
		{"the sink answers before the effect, so that the position is saved before it", Rules{EarlyAnswer: true}},
		{"the store does not compare the tokens of progress", Rules{NoToken: true}},
		{"a frame is handed over before its commit is known", Rules{HandEarly: true}},
		{"a frame from memory is taken whatever precedes it", Rules{HandBlind: true}},
		{"frames that are gone before others are not seen", Rules{NoPrev: true}},
		{"last frames that are gone are not seen", Rules{NoEnd: true}},
		{"the end of the log is read after its frames", Rules{EndLate: true}},
		{"a service without a position begins at the end of the log", Rules{StartEnd: true}},
		{"a decider that took over again does not say where the log ends", Rules{NoEnds: true}},
		{"a position passes slices that are not delivered", Rules{PassesSlices: true}},
		{"a restore leaves the progress as it is", Rules{KeepsProgress: true}},
		{"the owner keeps its cache after a commit of unknown outcome", Rules{Cache: decide.FaultInjection{KeepUnclear: true}}},
		{"the owner keeps its cache when it takes over", Rules{Cache: decide.FaultInjection{KeepTakeOver: true}}},
		{"the store compares watermarks by their token alone", Rules{TokenAlone: true}},
		{"the store takes decisions of any revision", Rules{NoRevision: true}},
		{"changes of a table are acknowledged before they are in the inbox", Rules{MarkFirst: true}},
		{"exported rows lack the last commit before their position", Rules{OldSnapshot: true}},
		{"a server does not show that another program moved the slot", Rules{HiddenMove: true}},
		{"entities that are stored of a table are not listed", Rules{ForgetsStored: true}},
		{"a promoted server keeps its timeline", Rules{OldTimeline: true}},
		{"every process takes the whole rate of a service", Rules{WholeRate: true}},
		{"an entity that changes again and again rests", Rules{RestsForever: true}},
		{"a refresh does not name the version that it repeats", Rules{AnyVersion: true}},
		{"refreshes are lost", Rules{LosesRefreshes: true}},
		{"tombstones are purged past their owners", Rules{PurgesPast: true}},
		{"the row of a slot is written whoever wrote it last", Rules{NoSwap: true}},
	}
	for part := range strings.FieldsSeq("oid schema entry publication leaves file toast shape type name listed") {
		rules = append(rules, broken{"the server does not show a table's " + part, Rules{Hides: part}})
	}
	for _, c := range rules {
		t.Run(c.name, func(t *testing.T) {
			shown, n, used, seed := 0, 0, processor(), *from
			next := func() (uint64, bool) {
				for ; !c.rules.concern(seed); seed++ {
				}
				seed++
				return seed - 1, n < max(*detect, brokenWithin)
			}
			simulate(t, f, c.rules, false, next, func(r Report) bool {
				n++
				if r.Violation != nil {
					shown++
					if shown == 1 {
						t.Logf("seed %d: %v", r.Seed, r.Violation)
					}
				}
				return shown == 0 || n < *detect
			})
			if used = processor() - used; shown == 0 {
				t.Fatalf("%d schedules did not show it", n)
			}
			t.Logf("%d of %d schedules show it: after %v of processor time", shown, n, (used / time.Duration(shown)).Round(100*time.Microsecond))
		})
	}
}

// brokenWithin bounds the schedules that a broken rule concerns until it shows. Most need a handful, the rarest some
// thousand, and which ones show it may differ a little from run to run.
const brokenWithin = 20_000
