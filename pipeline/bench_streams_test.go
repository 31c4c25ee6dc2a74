package pipeline

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkStreams is what BenchmarkEndToEnd is for kafka, done by the Kafka Streams
// job of tests/bench/streams: the same events, topics and services, and a clock that
// starts and stops at the same moments. The lean job compares and no more; the whole
// one keeps event ids and documents too. scripts/bench-streams runs all in turns.
func BenchmarkStreams(b *testing.B) {
	classes := os.Getenv("WEIR_STREAMS_CLASSPATH")
	if classes == "" {
		b.Skip("scripts/bench-streams fetches Kafka Streams and runs this")
	}
	for _, job := range []string{"lean", "whole"} {
		for _, w := range []workload{sparse, dense} {
			for _, services := range []int{1, 20, 200} {
				if _, when := w.view(0, services); when != "" {
					continue // the job has no filter
				}
				b.Run(fmt.Sprintf("%s/%s/services=%d", job, w.name, services), func(b *testing.B) {
					streamsJob(b, classes, job, realWorld(b, "kafka"), newStream(w, *benchEntities, services))
				})
			}
		}
	}
}

func streamsJob(b *testing.B, classes, kind string, w world, s *stream) {
	w.prepare(b, s.services)
	w.fill(b, s.first())
	job := startStreams(b, classes, kind, w, s)
	job.drain(b) // the warm-up
	before, total := job.say("pause"), run{cpu: cpu{}}
	for b.Loop() {
		b.StopTimer()
		w.fill(b, s.more(*benchEvents))
		used := job.used(b, w.servers)
		start := time.Now()
		b.StartTimer()
		job.say("resume")
		job.drain(b)
		b.StopTimer()
		total.took += time.Since(start)
		for who, now := range job.used(b, w.servers) {
			total.cpu[who] += now - used[who]
		}
		total.events += int64(*benchEvents)
		forwarded := job.say("pause")
		total.passed += forwarded - before
		before = forwarded
		b.StartTimer()
	}
	total.sent = total.passed
	report(b, total)
	b.ReportMetric(resident(b, job.pid), "MiB-resident")
}

// streams is a running job.
type streams struct {
	say   func(command string) (forwarded int64)
	pid   int
	admin *kadm.Client
	group string
	topic string
}

func startStreams(b *testing.B, classes, kind string, w world, s *stream) *streams {
	b.Helper()
	dir := b.TempDir()
	var views strings.Builder
	for i := range s.services {
		fields, _ := s.w.view(i, s.services)
		views.WriteString(w.topics.sink(i))
		for _, f := range fields {
			fmt.Fprintf(&views, "\tf%02d\tfield_%d", f, f)
		}
		views.WriteByte('\n')
	}
	file := filepath.Join(dir, "services")
	require.NoError(b, os.WriteFile(file, []byte(views.String()), 0o600))

	client, err := kgo.NewClient(kgo.SeedBrokers(w.topics.brokers...))
	require.NoError(b, err)
	b.Cleanup(client.Close)
	j := &streams{admin: kadm.NewClient(client), group: w.topics.source + "-streams", topic: w.topics.source}
	// As much heap as does the job without a collector that never rests.
	cmd := exec.Command("java", "-Xmx512m", "-cp", classes, "Streams",
		strings.Join(w.topics.brokers, ","), j.group, j.topic, filepath.Join(dir, "state"), file, kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	j.pid = cmd.Process.Pid
	lines := bufio.NewReader(out)
	line := func() string {
		text, err := lines.ReadString('\n')
		require.NoError(b, err)
		return strings.TrimSpace(text)
	}
	require.Equal(b, "running", line())
	j.say = func(command string) int64 {
		_, err := io.WriteString(in, command+"\n")
		require.NoError(b, err)
		n, err := strconv.ParseInt(line(), 10, 64)
		require.NoError(b, err)
		return n
	}
	b.Cleanup(func() {
		_ = in.Close() // it ends
		require.NoError(b, cmd.Wait())
	})
	return j
}

// drain waits until everything in the source is committed as done, and with it, in the
// same transactions, what came of it.
func (j *streams) drain(b *testing.B) {
	b.Helper()
	ends, err := j.admin.ListEndOffsets(b.Context(), j.topic)
	require.NoError(b, err)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		done, err := j.admin.FetchOffsets(b.Context(), j.group)
		require.NoError(b, err)
		left := false
		ends.Each(func(o kadm.ListedOffset) {
			at, ok := done.Lookup(o.Topic, o.Partition)
			left = left || o.Offset > 0 && (!ok || at.At < o.Offset)
		})
		if !left {
			return
		}
	}
}

func (j *streams) used(b *testing.B, names []string) cpu {
	used := usedCPU(b, names...)
	delete(used, "weir") // it makes the events
	used["streams"] = family(j.pid, processes(b))
	return used
}
