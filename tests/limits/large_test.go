//go:build verify

package limits

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// largeSizes are the sizes of events, the last one above the limit.
var largeSizes = []int{1 << 20, 8 << 20, 32 << 20, 64 << 20, 64<<20 + 1}

// largeConfig raises the limits. Of the document that was sent, change adds
// the names of service and entity.
const largeConfig = `
sources:
  events:
    %s
    entity: id
    event_id: event
    strip: [event]
    max_event: 64MiB
limits: {change: 65MiB}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
`

// largeModel is the model of the customers of a test of large events: whole
// gets everything, small gets the state.
func largeModel() oracle.Config {
	config := harness.SimpleModel("small")
	whole := oracle.Projection{
		Services: []string{"whole/all@file", "whole/all@table"},
		Fields:   []oracle.Field{{To: "id", From: "id"}, {To: "state", From: "state"}, {To: "chunks", From: "chunks"}},
	}
	config.Projection = append(config.Projection, whole)
	return config
}

func writeCustomers(p harness.Project, target string) {
	p.Write("customers/small.yaml", "customer: small\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver: {out: {file: {path: ../out/small.jsonl}}}\n")
	p.Write("customers/whole.yaml", fmt.Sprintf(`
customer: whole
projections:
  all:
    fields: {id: id, state: state, chunks: chunks}
    deliver:
      file: {file: {path: ../out/whole.jsonl}}
      table: {postgres: {url: %q, table: whole}}
`, target))
}

// I7, I9: events of up to 64 MiB come through from a file, where the limits
// are raised; a larger one is a dead letter.
func TestLargeEventsFromAFile(t *testing.T) {
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	c := &harness.Cluster{T: t, Target: servers.Postgres(t)}
	p := harness.NewProject(t, map[string]string{"weir.yaml": fmt.Sprintf(largeConfig, "file: {path: events.jsonl}")})
	writeCustomers(p, c.Target)
	text := harness.Event(1, "before", "1")
	var tooLarge string
	for i, size := range largeSizes {
		tooLarge = large(i, fmt.Sprint("L", i), size)
		text += tooLarge + "\n" + harness.Event(100+i, "between", fmt.Sprint(i))
	}
	p.Write("events.jsonl", text)
	run := p.Start("run")
	largeArrive(t, run, 10)
	harness.Eventually(t, "what comes after the large events", func() error {
		return harness.Want(len(p.Whole("out/small.jsonl")), len(largeSizes)-1+len(largeSizes)+1)
	})
	t.Logf("peak of resident memory: %d MiB", run.Memory("VmHWM")>>20)
	run.Terminate()
	run.Ok()
	all := p.Letters()
	require.Len(t, all, 1)
	require.Equal(t, "oversized", all[0].Code)
	require.Contains(t, all[0].Reason, "64")
	require.True(t, strings.HasPrefix(tooLarge, (*p.Letter(all[0].ID).Payload)[:1000]))

	input := harness.ReadLines(t, map[string]string{"events": p.Path("events.jsonl")})
	for offset, line := range input.All["events"] {
		if line == tooLarge {
			delete(input.All["events"], offset)
		}
	}
	want, err := oracle.Run(largeModel(), harness.ModelEvents(t, 1, p.Inbox(), input.Find))
	require.NoError(t, err)
	input.Complete()
	checkLarge(t, p, c, want)
}

// largeArrive waits until the file and the table have that many changes each,
// for as long as they go on arriving: a busy machine takes a while for them.
func largeArrive(t *testing.T, run *harness.Process, want int) {
	t.Helper()
	tick := time.NewTicker(harness.Poll)
	defer tick.Stop()
	progress, before := time.Now(), [2]int{}
	for before != [2]int{want, want} {
		<-tick.C
		require.False(t, run.Ended(), harness.Tail(run.Log.String(), 40))
		if now := [2]int{int(delivered(run, "whole/all@file")), int(delivered(run, "whole/all@table"))}; now != before {
			progress, before = time.Now(), now
		}
		require.Less(t, time.Since(progress), 2*harness.Patience, "nothing arrives any more: %v of %d", before, want)
	}
}

func delivered(run *harness.Process, service string) float64 {
	return run.Metric("weir_deliveries_total", fmt.Sprintf("service=%q", service), `outcome="delivered"`) +
		run.Metric("weir_deliveries_total", fmt.Sprintf("service=%q", service), `outcome="coalesced"`)
}

func checkLarge(t *testing.T, p harness.Project, c *harness.Cluster, want oracle.Expected) {
	t.Helper()
	require.NoError(t, oracle.CheckLog(want, "small/all@out", p.Records("out/small.jsonl")))
	require.NoError(t, oracle.CheckLog(want, "whole/all@file", p.Records("out/whole.jsonl")))
	require.NoError(t, oracle.CheckState(want, "whole/all@table", oracle.Newest(c.Rows("whole", "whole/all@table", "entity"))))
}

// I7, I9: the same from Kafka, with the state in PostgreSQL.
func TestLargeEventsFromKafka(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Kafka and PostgreSQL")
	}
	// A broker of its own, with room for such messages, which the one that all
	// tests share has not: Java keeps a buffer of the largest one for every
	// thread, outside of its heap.
	t.Setenv("_JAVA_OPTIONS", "-Xmx1g -XX:MaxDirectMemorySize=2g")
	kafka := servers.StartOwn(t, "kafka")
	c := &harness.Cluster{T: t, Brokers: []string{kafka.Address}, Target: servers.Postgres(t), Sent: map[string]*kgo.Record{}}
	var err error
	c.Kafka, err = kgo.NewClient(kgo.SeedBrokers(c.Brokers...), kgo.ProducerBatchMaxBytes(70<<20), kgo.MaxBufferedBytes(1<<30), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(t, err)
	t.Cleanup(c.Kafka.Close)
	topic := c.Prefix + "events"
	limit := fmt.Sprint(70 << 20)
	_, err = kadm.NewClient(c.Kafka).CreateTopic(t.Context(), 2, 1, map[string]*string{"max.message.bytes": &limit}, topic)
	require.NoError(t, err)

	p := harness.NewProject(t, map[string]string{"weir.yaml": fmt.Sprintf(largeConfig, fmt.Sprintf("kafka: {topic: %q}", topic)) +
		fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [%q], prefix: %q}\n", servers.Postgres(t), c.Brokers[0], c.Prefix+"weir")})
	writeCustomers(p, c.Target)
	run := p.Start("run")
	for i, size := range largeSizes {
		id := fmt.Sprint("L", i)
		c.Send(harness.Record(topic, id, large(i, id, size)))
		c.Send(harness.Record(topic, "between", harness.Event(100+i, "between", fmt.Sprint(i))))
	}
	largeArrive(t, run, 9)
	t.Logf("peak of resident memory: %d MiB", run.Memory("VmHWM")>>20)
	run.Terminate()
	run.Ok()
	all := p.Letters()
	require.Len(t, all, 1)
	require.Equal(t, "oversized", all[0].Code)
	for place, r := range c.Sent {
		if len(r.Value) > 64<<20 {
			delete(c.Sent, place)
		}
	}
	want, err := c.Model(largeModel())
	require.NoError(t, err)
	checkLarge(t, p, c, want)
}

// I7: how much of a file is in memory does not grow with the file, however
// large its events are.
func TestManyLargeEvents(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	most := map[int]int64{}
	for _, events := range []int{64, 512} {
		p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
		f, err := os.Create(p.Path("events.jsonl"))
		require.NoError(t, err)
		for n := range events {
			_, err := f.WriteString(large(n, fmt.Sprint("E", n%8), 1<<20) + "\n")
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
		run := p.Start("run")
		harness.Eventually(t, "the changes", func() error { return harness.Want(len(p.Whole("out/acme.jsonl")), events) })
		most[events] = run.Memory("VmHWM")
		run.Terminate()
		run.Ok()
	}
	t.Logf("peak of resident memory: %d MiB with 64 events of 1 MiB, %d MiB with 512", most[64]>>20, most[512]>>20)
	require.LessOrEqual(t, most[512], most[64]+256<<20)
}
