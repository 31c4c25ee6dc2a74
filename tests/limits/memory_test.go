//go:build verify

package limits

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

var manyEvents = flag.Int("limits.events", 60_000, "events of the memory tests")

// rounds is how often every entity of the memory tests changes.
const rounds = 10

// I7: with a sink that refuses connections and everything for it waiting in the
// broker, memory does not grow with the number of events, and the other
// customer gets all of them. Without a limit it grows to a quarter of the machine's.
func TestMemoryEmbedded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	dead := harness.NewReceiver(t)
	dead.Down()
	// The gate's memory has a limit of its own, in event ids. It is small here,
	// or it would fill during the whole test.
	p := harness.Simple(t, "gate: {memory: {max_entries: 5000}}\nlimits: {memory: 512MiB}\n", map[string]string{"alive": harness.FileSink("alive"), "dead": logHook(t, dead)})
	round := func(from, to int) { p.Append("events.jsonl", harness.Many(*manyEvents/rounds, from, to)) }
	round(0, rounds-1)
	run := p.Start("run")
	watchMemory(t, p, run, func() { round(rounds-1, rounds) })
	run.Terminate()
	run.Ok()
	require.NoError(t, oracle.CheckLog(p.Expected("alive", "dead"), "alive/all@out", p.Records("out/alive.jsonl")))
}

// I7: the same on Kafka and PostgreSQL.
func TestMemoryOnServers(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Kafka, PostgreSQL and Valkey")
	}
	dead := harness.NewReceiver(t)
	dead.Down()
	brokers, prefix := servers.Kafka(t)
	valkey, keys := servers.Valkey(t)
	c := (&harness.Cluster{T: t, Brokers: brokers, Prefix: prefix}).Connect()
	p := harness.Simple(t, "", map[string]string{"alive": harness.FileSink("alive"), "dead": logHook(t, dead)})
	p.Write("weir.yaml", fmt.Sprintf(`
store: {postgres: {url: %q}}
gate: {valkey: {address: %q, prefix: %q}}
kafka: {brokers: [%q], prefix: %q}
sources:
  events: {kafka: {topic: %q}, entity: id, event_id: event, strip: [event]}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
limits: {memory: 512MiB}
`, servers.Postgres(t), valkey, keys, brokers[0], prefix+"weir", prefix+"events"))
	c.Topics(4, prefix+"events")
	entities := *manyEvents / rounds
	send := func(round int) {
		var batch []*kgo.Record
		for e := range entities {
			id := fmt.Sprint("E", e)
			batch = append(batch, harness.Record(prefix+"events", id, harness.Event(round*entities+e, id, fmt.Sprint("r", round))))
		}
		c.Send(batch...)
	}
	for round := range rounds - 1 {
		send(round)
	}
	run := p.Start("run")
	watchMemory(t, p, run, func() { send(rounds - 1) })
	run.Terminate()
	run.Ok()
	want, err := c.Model(harness.SimpleModel("alive", "dead"))
	require.NoError(t, err)
	require.NoError(t, oracle.CheckLog(want, "alive/all@out", p.Records("out/alive.jsonl")))
}

// sample is one measurement of a process.
type sample struct {
	after     time.Duration
	delivered int   // to the customer that is alive
	resident  int64 // bytes
	pending   int   // for the customer that is dead
}

// fewest are the samples that can be compared.
const fewest = 9

// watchMemory samples a process until the file out/alive.jsonl has all changes,
// prints the samples, and holds the last third of them against the first. last
// sends the events of the last round: not before there are samples enough, so
// that a pause of the test itself does not miss all.
func watchMemory(t *testing.T, p harness.Project, run *harness.Process, last func()) {
	t.Helper()
	want := *manyEvents / rounds * rounds
	run.Ready(200)
	var samples []sample
	out := lineCounter{path: p.Path("out/alive.jsonl")}
	start, progress := time.Now(), time.Now()
	period := 100 * time.Millisecond
	if want > 200_000 {
		period = 2 * time.Second
	}
	tick := time.NewTicker(period)
	defer tick.Stop()
	for lines := 0; lines < want; {
		<-tick.C
		require.False(t, run.Ended(), harness.Tail(run.Log.String(), 40))
		n := out.count(t)
		if n > lines {
			lines, progress = n, time.Now()
		}
		require.Less(t, time.Since(progress), 2*harness.Patience, "nothing arrives any more: %d of %d", lines, want)
		samples = append(samples, sample{time.Since(start), lines, run.Memory("VmRSS"), int(run.Metric("weir_delivery_queued", `service="dead/all@out"`))})
		if len(samples) == fewest {
			last()
		}
	}
	// The gauge is looked at every five seconds.
	harness.Eventually(t, "the backlog of the dead sink is seen", func() error {
		// The changes of some entities wait for another attempt instead, in rows.
		if queued := run.Metric("weir_delivery_queued", `service="dead/all@out"`); queued < 0.95*float64(want) {
			return fmt.Errorf("%v of %d are queued", queued, want)
		}
		return nil
	})
	harness.Eventually(t, "an attempt at the dead sink", func() error {
		return harness.Want(run.Metric("weir_delivery_failures_total", `service="dead/all@out"`) > 0, true)
	})
	run.Ready(200)
	t.Logf("%d events, one sink dead, one alive\n%s", want, table(samples))
	third := len(samples) / 3
	early, late := median(samples[:third]), median(samples[len(samples)-third:])
	t.Logf("resident memory, median of the first third %d MiB, of the last third %d MiB", early>>20, late>>20)
	require.LessOrEqual(t, late, early+early/2+128<<20, "memory grows with the number of events")
}

func median(samples []sample) int64 {
	var all []int64
	for _, s := range samples {
		all = append(all, s.resident)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// table shows some twenty samples.
func table(samples []sample) string {
	var b strings.Builder
	b.WriteString("| after | delivered to the one alive | waiting for the dead one | resident |\n| ---: | ---: | ---: | ---: |\n")
	step := max(1, len(samples)/20)
	for i, s := range samples {
		if i%step == 0 || i == len(samples)-1 {
			fmt.Fprintf(&b, "| %.1f s | %d | %d | %d MiB |\n", s.after.Seconds(), s.delivered, s.pending, s.resident>>20)
		}
	}
	return b.String()
}
