//go:build verify

package recovery

import (
	"context"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// I1: offsets that compaction has emptied, also the one that is to be read
// next. The source is drained, and that it is drained is noticed.
func TestGapsOfCompaction(t *testing.T) {
	t.Parallel()
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWorldWithSource(t, servers.Postgres(t), window, map[string]*string{
				"cleanup.policy": kadm.StringPtr("compact"), "segment.ms": kadm.StringPtr("100"), "segment.bytes": kadm.StringPtr("1048576"),
				"min.cleanable.dirty.ratio": kadm.StringPtr("0.01"), "min.compaction.lag.ms": kadm.StringPtr("0"),
				"max.compaction.lag.ms": kadm.StringPtr("100"),
			})
			w.say(1)
			w.drain()
			require.NoError(t, w.check())
			w.say(4)
			left := func() map[place]bool {
				all := map[place]bool{}
				for _, r := range harness.ReadTopic(t, w.Brokers, w.source()) {
					all[place{r.Partition, r.Offset}] = true
				}
				return all
			}
			sent := w.sent[w.topicID(w.source())]
			harness.Eventually(t, "compaction", func() error {
				// The newest segment is never compacted, so it must not stay the newest.
				w.say(1)
				return harness.Want(len(left()) < len(sent)-2*entities, true)
			})
			w.drain()
			var gone []*kgo.Record // or removed a moment ago, and in the inbox
			now := left()
			for at, r := range sent {
				if !now[at] {
					gone = append(gone, r)
				}
			}
			require.NoError(t, w.check(gone...))
			require.Empty(t, w.Letters())
		})
	}
}

// I1: transactions leave markers, which take offsets, and events that were
// aborted, which no consumer may see. One that is still open at the end holds up the
// events behind it, and only those.
func TestGapsOfTransactions(t *testing.T) {
	t.Parallel()
	for name, window := range windows {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, servers.Postgres(t), window)
			client, err := kgo.NewClient(kgo.SeedBrokers(w.Brokers...), kgo.TransactionalID(w.Prefix+"writer"), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
			require.NoError(t, err)
			t.Cleanup(client.Close)
			write := func() []*kgo.Record {
				require.NoError(t, client.BeginTransaction())
				events := w.round()
				require.NoError(t, client.ProduceSync(t.Context(), events...).FirstErr())
				return events
			}
			end := func(how kgo.TransactionEndTry) {
				require.NoError(t, client.EndTransaction(context.WithoutCancel(t.Context()), how))
			}
			for range 3 {
				events := write()
				end(kgo.TryCommit)
				w.remember(events)
				write()
				end(kgo.TryAbort)
			}
			w.drain()
			require.NoError(t, w.check(), "an event that was aborted is one that nobody sent")

			w.say(1)
			late := write() // open: --until-idle would wait for its end
			run := w.run()
			w.agree(run)
			stop(run)
			end(kgo.TryCommit)
			w.remember(late)
			write()
			end(kgo.TryAbort)
			w.drain()
			require.NoError(t, w.check())
			require.Empty(t, w.Letters())
		})
	}
}
