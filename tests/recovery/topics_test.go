//go:build verify

package recovery

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

// windows are the two transports of a source.
var windows = map[string]int{"windowed": 100, "one at a time": 1}

// I1, I5: the inbox is deleted and re-created between two runs. What only the old inbox held
// and was not decided is lost, and that is said.
func TestInboxRecreatedBetweenRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	w.say(2)
	w.drain()
	require.NoError(t, w.check())
	w.keep()

	ingest := w.Start("run --role ingest")
	ingest.Ready(200)
	lost := w.round()
	w.send(w.Kafka, lost)
	harness.Eventually(t, "they are in the inbox", func() error {
		_, err := w.expected()
		return err
	})
	stop(ingest)
	w.remove(w.inbox())
	w.create(w.inbox(), 4, nil)
	w.generation++

	ingest = w.Start("run --role ingest")
	w.say(5) // further than the old watermarks
	ingest.Says("event=inbox.replaced")
	harness.Eventually(t, "they are in the new inbox", func() error {
		_, err := w.expected(lost...)
		return err
	})
	require.NotZero(t, ingest.Metric("weir_log_records_lost_total", w.inbox()))
	stop(ingest)
	require.NotContains(t, w.drain().Log.String(), "event=inbox.replaced", "once")
	require.NoError(t, w.check(lost...))
	require.Empty(t, w.Letters())
}

// I1, I5: a source topic that is deleted and re-created begins at offset 0, and
// grows beyond the committed offset. Its events are neither seen nor stale.
func TestSourceTopicRecreated(t *testing.T) {
	t.Parallel()
	for name, window := range windows {
		t.Run("between runs, "+name, func(t *testing.T) {
			w := newWorld(t, servers.Postgres(t), window)
			w.say(2)
			w.drain()
			require.NoError(t, w.check())
			w.recreateSource()
			w.say(5)
			w.drain()
			require.NoError(t, w.check())
		})
		t.Run("under a running process, "+name, func(t *testing.T) {
			w := newWorld(t, servers.Postgres(t), window)
			run := w.run()
			w.say(2)
			w.agree(run)
			w.recreateSource()
			w.say(5)
			w.agree(run)
			require.Zero(t, run.Metric("weir_events_total", `outcome="stale"`))
			stop(run)
		})
	}
}

func (w *world) recreateSource() {
	w.remove(w.source())
	w.create(w.source(), 2, nil)
}

// I1: partitions that are added to a source are read from their start, with
// their content when they are noticed. An entity's events may come from
// another partition then, and are not stale.
func TestPartitionsAddedToASource(t *testing.T) {
	t.Parallel()
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, servers.Postgres(t), window)
			run := w.run()
			w.say(2)
			w.agree(run)
			w.grow(w.source(), 5)
			w.say(3)
			moved := map[int32]bool{}
			for _, r := range w.sent[w.topicID(w.source())] {
				moved[r.Partition] = true
			}
			require.Len(t, moved, 5)
			w.agree(run)
			require.Zero(t, run.Metric("weir_events_total", `outcome="stale"`))
			stop(run)
		})
	}
}

// grow adds partitions to a topic; the client of the tests uses them at once.
func (w *world) grow(topic string, partitions int) {
	w.t().Helper()
	done, err := w.Admin.UpdatePartitions(w.t().Context(), partitions, topic)
	require.NoError(w.t(), errors.Join(err, done.Error()))
	w.Kafka.PurgeTopicsFromClient(topic)
	harness.Eventually(w.t(), "the partitions of "+topic, func() error {
		topics, err := w.Admin.ListTopics(w.t().Context(), topic)
		return errors.Join(err, harness.Want(len(topics[topic].Partitions), partitions), topics.Error())
	})
}

// I3, I5: the inbox's partitions decide who decides what and in which order, so
// their number is fixed. Weir does not start with another one.
func TestInboxRepartitionedBetweenRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	w.say(1)
	w.drain()
	require.NoError(t, w.check())
	w.grow(w.inbox(), 8)
	refused := w.Start("run")
	require.Equal(t, 1, refused.Wait())
	require.Contains(t, refused.Log.String(), fmt.Sprintf("topic %s has 8 partitions, 4 configured", w.inbox()))

	text := harness.ReplaceOnce(t, w.yaml, "inbox: {partitions: 4}", "inbox: {partitions: 8}")
	w.Write("weir.yaml", text)
	refused = w.Start("run")
	require.Equal(t, 1, refused.Wait())
	require.Contains(t, refused.Log.String(), "re-partitioned")

	// The way out: another topic.
	w.keep()
	w.Write("weir.yaml", harness.ReplaceOnce(t, text, "inbox: {partitions: 8}", fmt.Sprintf("inbox: {partitions: 8, topic: %q}", w.inbox()+"2")))
	w.inboxName, w.generation = w.inbox()+"2", 2
	w.say(3)
	w.drain()
	require.NoError(t, w.check())
}

// I3, I5: partitions that are added to the inbox under a running process: no
// entity moves, and the process ends with a clear message, not with a loss.
func TestInboxRepartitionedUnderARunningProcess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	run := w.run()
	w.say(1)
	w.agree(run)
	w.grow(w.inbox(), 8)
	harness.Eventually(t, "the process ends", func() error {
		w.say(1)
		return harness.Want(run.Ended(), true)
	})
	require.Equal(t, 1, run.Wait())
	require.Contains(t, run.Log.String(), "re-partitioned")
	for _, r := range harness.ReadTopic(t, w.Brokers, w.inbox()) {
		require.Less(t, r.Partition, int32(4), "an entity moved to a partition that nobody decides")
	}
}

// I1, I5: the inbox was truncated below the decided offset, as after an unclean
// election, or with the folder of a broker restored. The mistake that this catches:
// new events were acknowledged, got offsets below the watermark and were dropped as
// decided; and those above got versions that others had.
func TestInboxShorterThanItsWatermarks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	w.say(2)
	w.drain()
	require.NoError(t, w.check())
	w.keep()
	// As if it had been longer: no broker can be asked to forget the end of a log.
	harness.Exec(t, w.Store, "UPDATE watermarks SET next_offset = next_offset + 1000")
	w.generation++
	run := w.run()
	run.Says("event=inbox.truncated")
	require.NotZero(t, run.Metric("weir_log_records_lost_total", w.inbox()))
	w.say(3)
	w.agree(run)
	stop(run)
	require.NotContains(t, w.drain().Log.String(), "event=inbox.truncated", "once")
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I1, I5, I8: the inbox is deleted under a running process, which re-creates it, and gets more records than the old
// one had. Versions go on growing: a new generation. The mistake that this catches: everything was blocked, and the
// process was ready.
func TestTheInboxIsMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	run := w.run()
	w.say(2)
	w.agree(run)
	w.keep()
	gone, err := w.Admin.DeleteTopics(t.Context(), w.inbox())
	require.NoError(t, errors.Join(err, gone.Error()))
	w.Kafka.PurgeTopicsFromClient(w.inbox())
	w.generation++
	run.Says("event=topic.recreated")
	w.say(5)
	w.agree(run)
	run.Says("event=inbox.replaced")
	run.Ready(200)
	stop(run)
	w.say(1)
	w.drain()
	require.NoError(t, w.check())
	require.Empty(t, w.Letters())
}

// I8: an inbox that takes no record is named, and the process is not ready until it
// takes records again; then everything resumes.
func TestATopicThatTakesNoRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, servers.Postgres(t), 100)
	run := w.run()
	w.say(1)
	w.agree(run)
	least := func(n string) {
		t.Helper()
		done, err := w.Admin.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.insync.replicas", Value: &n}}, w.inbox())
		require.NoError(t, err)
		require.NoError(t, done[0].Err)
	}
	least("2")
	w.say(1)
	run.Ready(503)
	_, why := run.Get("/readyz")
	require.Contains(t, why, w.inbox())
	require.Contains(t, why, "min.insync.replicas")
	least("1")
	run.Ready(200)
	w.agree(run)
	stop(run)
	require.Empty(t, w.Letters())
}

// I8: a source whose topic is gone is named, and the process is not ready until the
// topic is there again; then it is read. The mistake that this catches: the process
// was ready, and only a line of its log told.
func TestASourceWithoutItsTopic(t *testing.T) {
	t.Parallel()
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, servers.Postgres(t), window)
			run := w.run()
			w.say(1)
			w.agree(run)
			w.remove(w.source())
			harness.Eventually(t, "the source is named", func() error {
				status, why := run.Get("/readyz")
				if status != 200 || !strings.Contains(why, "source events") || !strings.Contains(why, w.source()) {
					return fmt.Errorf("%d: %s", status, why)
				}
				return nil
			})
			w.create(w.source(), 2, nil)
			w.say(1)
			w.agree(run)
			run.Ready(200)
			stop(run)
			require.Empty(t, w.Letters())
		})
	}
}
