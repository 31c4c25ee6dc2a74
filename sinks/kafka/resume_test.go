package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// numbered makes changes with the positions from to up to, not including, to, of a few
// entities, of a partition of the changes log.
func numbered(of string, partition int32, from, to int64) []change.Change {
	var all []change.Change
	for n := from; n < to; n++ {
		c := sinktest.Change(of, fmt.Sprintf("e-%d-%d", partition, n%5), change.NewVersion(1, n), fmt.Appendf(nil, `{"n":%d}`, n))
		c.Partition = partition
		all = append(all, c)
	}
	return all
}

// saved is what deliver keeps of one partition.
type saved struct {
	at   int64
	mark string
}

func (s saved) claim(partition int32) sinks.Takeover {
	return sinks.Takeover{Partition: partition, Below: change.NewVersion(1, s.at), Bookmark: s.mark}
}

// resumed makes a process's sink that has taken a partition over.
func resumed(t testing.TB, o Options, partition int32, s saved) *Sink {
	t.Helper()
	sink := newSink(t, o)
	require.NoError(t, sink.Resume(t.Context(), []sinks.Takeover{s.claim(partition)}))
	return sink
}

// begun makes a topic, and a process's sink that has written the positions below to of
// partition 0 there; mark is what deliver kept before.
func begun(t testing.TB, name string, to int64) (log *topicLog, o Options, first *Sink, mark string) {
	t.Helper()
	brokers, prefix := servers.Kafka(t)
	log = newTopic(t, brokers, prefix+name, topicMaxBytes)
	o = Options{Client: newClient(t, brokers, nil), Topic: log.topic}
	first = resumed(t, o, 0, saved{at: 1})
	mark, _ = first.Bookmark(0)
	require.NoError(t, first.Write(t.Context(), numbered(service, 0, 1, to)))
	return log, o, first, mark
}

// once requires that the records of a service in the topic are these changes, each of
// them once, those of an entity in their order, for a reader that looks at no key.
func once(t testing.TB, log *topicLog, of string, want []change.Change) {
	t.Helper()
	missing := map[string]bool{}
	for _, c := range want {
		missing[c.Key] = true
	}
	newest := map[string]change.Version{}
	for _, r := range log.records(t) {
		c := fromRecord(t, r)
		if c.Service != of {
			continue
		}
		require.True(t, missing[c.Key], "%s %v is there twice, or was never written", c.Entity, c.Version)
		delete(missing, c.Key)
		require.Greater(t, c.Version, newest[c.Entity])
		newest[c.Entity] = c.Version
	}
	require.Empty(t, missing)
}

// A successor leaves out what its predecessor wrote behind the saved position, and
// nothing else: not what another service, or another partition, wrote there under the
// same positions.
func TestWhatAPredecessorWroteIsLeftOut(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	client := newClient(t, brokers, nil)
	log := newTopic(t, brokers, prefix+"left", topicMaxBytes)
	o := Options{Client: client, Topic: log.topic}
	other := Options{Client: client, Topic: log.topic, Service: "s/other@k"}
	require.NoError(t, newSink(t, other).Write(t.Context(), numbered(other.Service, 0, 1, 40)))

	first := resumed(t, o, 0, saved{at: 1})
	before, above := first.Bookmark(0)
	require.Zero(t, above)
	require.NoError(t, first.Write(t.Context(), numbered(service, 0, 1, 10)))
	after, above := first.Bookmark(0)
	require.Equal(t, change.NewVersion(1, 9), above)
	require.NotEqual(t, before, after)
	require.NoError(t, first.Write(t.Context(), numbered(service, 0, 10, 20)))
	require.NoError(t, newSink(t, o).Write(t.Context(), numbered(service, 1, 1, 40)))
	require.NoError(t, newSink(t, other).Write(t.Context(), numbered(other.Service, 0, 40, 50)))

	next := resumed(t, o, 0, saved{10, after})
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 10, 30)))
	require.EqualValues(t, 10, next.Found())
	third := resumed(t, o, 0, saved{1, before})
	require.NoError(t, third.Write(t.Context(), numbered(service, 0, 1, 35)))
	require.EqualValues(t, 29, third.Found())
	once(t, log, service, append(numbered(service, 0, 1, 35), numbered(service, 1, 1, 40)...))
}

// A clean stop leaves little to read: also where other partitions of the changes log, whose
// entities are elsewhere in the topic, wrote most of it.
func TestCleanStopLeavesOnlyTheLastWriteToRead(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"clean", topicMaxBytes)
	o := Options{Client: newClient(t, brokers, nil), Topic: log.topic}
	first := newSink(t, o)
	require.NoError(t, first.Resume(t.Context(), []sinks.Takeover{{Partition: 0, Below: 1}, {Partition: 1, Below: 1}}))
	of := func(partition int32, n int64) change.Change { // an entity each, in partitions of their own
		c := sinktest.Change(service, map[int32]string{0: "e-0", 1: "e-1"}[partition], change.NewVersion(1, n), []byte(`{}`))
		c.Partition = partition
		return c
	}
	const last = 60
	for n := int64(1); n < last; n++ {
		require.NoError(t, first.Write(t.Context(), []change.Change{of(0, n), of(1, n)}))
	}
	topic, err := o.Client.Topic(t.Context(), log.topic, 0)
	require.NoError(t, err)
	require.NotEqual(t, topic.Partition([]byte("e-0")), topic.Partition([]byte("e-1")))
	ends, err := o.Client.Ends(t.Context(), topic)
	require.NoError(t, err)
	for p := range int32(2) {
		kept, _ := first.Bookmark(p)
		m, ok := parseMark(kept)
		require.True(t, ok)
		for q := range ends {
			require.LessOrEqual(t, ends[q]-m.ends[q], int64(1), "partition %d would read %d of the topic from %d on", p, q, m.ends[q])
		}
	}
}

// A change that is sent once more has a position of its own: it is no repetition.
func TestWhatIsSentOnceMoreIsThereOnceMore(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"resent", topicMaxBytes)
	o := Options{Client: newClient(t, brokers, nil), Topic: log.topic}
	first := resumed(t, o, 0, saved{at: 1})
	mark, _ := first.Bookmark(0)
	all := numbered(service, 0, 1, 4)
	require.NoError(t, first.Write(t.Context(), all))
	again := all[0]
	again.Resent = change.NewVersion(1, 9)
	for range 2 {
		require.NoError(t, resumed(t, o, 0, saved{1, mark}).Write(t.Context(), append(numbered(service, 0, 1, 4), again)))
	}
	require.Len(t, log.records(t), 4)
}

// The last writer has fenced all others. A fenced writer takes over
// again and finds the other's records.
func TestTwoThatFenceEachOtherWriteOnce(t *testing.T) {
	log, o, a, mark := begun(t, "two", 5)
	b := resumed(t, o, 0, saved{1, mark})
	err := a.Write(t.Context(), numbered(service, 0, 5, 10))
	require.Error(t, err)
	require.Equal(t, sinks.Retry, sinks.Classify(err).Class)
	require.NoError(t, b.Write(t.Context(), numbered(service, 0, 1, 8)))
	require.NoError(t, a.Write(t.Context(), numbered(service, 0, 5, 10)), "it took over again")
	require.Error(t, b.Write(t.Context(), numbered(service, 0, 8, 12)))
	require.NoError(t, b.Write(t.Context(), numbered(service, 0, 8, 12)))
	once(t, log, service, numbered(service, 0, 1, 12))
}

// Records that were found and not passed yet are found again.
func TestWhatWasFoundIsFoundAgain(t *testing.T) {
	log, o, _, mark := begun(t, "found", 20)
	next := resumed(t, o, 0, saved{1, mark})
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 5)))
	resumed(t, o, 0, saved{1, mark}) // it fences, and is gone
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 5, 20)), "all of it was known")
	require.Error(t, next.Write(t.Context(), numbered(service, 0, 20, 22)))
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 20, 22)))
	third := resumed(t, o, 0, saved{1, mark})
	require.NoError(t, third.Write(t.Context(), numbered(service, 0, 1, 5)))
	resumed(t, o, 0, saved{1, mark})
	require.NoError(t, third.Resume(t.Context(), []sinks.Takeover{third.parts[0].claim}))
	require.NoError(t, third.Write(t.Context(), numbered(service, 0, 5, 25)))
	once(t, log, service, numbered(service, 0, 1, 25))
}

// Records are found again until a Write has reported them to deliver.
func TestWhatNobodyWasToldOfIsFoundAgain(t *testing.T) {
	log, o, _, mark := begun(t, "untold", 4)
	next := resumed(t, o, 0, saved{1, mark})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	next.parts[0].writer = nil // as after a write without an answer
	require.Error(t, next.Write(over, numbered(service, 0, 1, 4)))
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 2)), "deliver tries less at a time")
	kept, _ := next.Bookmark(0)
	require.Equal(t, mark, kept)
	resumed(t, o, 0, saved{1, mark}) // it fences, and is gone
	next.parts[0].writer = nil
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 2, 4)))
	once(t, log, service, numbered(service, 0, 1, 4))
}

// More than is remembered at a time is read in turns.
func TestMoreIsLeftThanIsRemembered(t *testing.T) {
	log, o, _, mark := begun(t, "more", 100)
	o.maxLeft = 20
	next := resumed(t, o, 0, saved{1, mark})
	for n := int64(1); n < 120; n += 10 {
		require.NoError(t, next.Write(t.Context(), numbered(service, 0, n, n+10)))
		if kept, above := next.Bookmark(0); n+10 < 100 {
			require.True(t, kept == mark || above >= change.NewVersion(1, 99), "what was found would be looked for too late")
		}
	}
	once(t, log, service, numbered(service, 0, 1, 121))
}

// All sinks of a client share the memory for leftovers, as after a restore.
func TestLeftoversOfManySinksShareABudget(t *testing.T) {
	log, o, _, mark := begun(t, "shared", 1)
	const services, each = 6, 3 * minLeft
	names := make([]string, services)
	for i := range names {
		names[i] = fmt.Sprint(service, i)
		o.Service = names[i]
		require.NoError(t, resumed(t, o, 0, saved{at: 1}).Write(t.Context(), numbered(names[i], 0, 1, each)))
	}
	o.maxRemembered = 2 * minLeft
	var all []*Sink
	for _, name := range names {
		o.Service = name
		all = append(all, resumed(t, o, 0, saved{1, mark}))
	}
	require.LessOrEqual(t, o.Client.Remembered.Load(), int64(services*minLeft), "the least of each, where the budget is spent")
	for i, s := range all {
		for n := int64(1); n < each+100; n += 1000 {
			require.NoError(t, s.Write(t.Context(), numbered(names[i], 0, n, min(n+1000, each+100))))
		}
		require.NoError(t, s.Close())
	}
	require.Zero(t, o.Client.Remembered.Load())
	for _, name := range names {
		once(t, log, name, numbered(name, 0, 1, each+100))
	}
}

// A writer is fenced anew before the brokers forget its identity.
func TestAWriterHasALifetime(t *testing.T) {
	log, _, sink, _ := begun(t, "lifetime", 3)
	first := sink.parts[0].writer
	require.NoError(t, sink.Write(t.Context(), numbered(service, 0, 3, 5)))
	require.Same(t, first, sink.parts[0].writer)
	sink.parts[0].since = time.Now().Add(-fenced.Lifetime - time.Second)
	require.NoError(t, sink.Write(t.Context(), numbered(service, 0, 5, 7)))
	require.NotSame(t, first, sink.parts[0].writer)
	require.Less(t, time.Since(sink.parts[0].since), fenced.Lifetime)
	once(t, log, service, numbered(service, 0, 1, 7))
}

// A topic that was deleted and made again is read from its beginning.
func TestATopicThatWasMadeAgain(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	name := prefix + "again"
	log := newTopic(t, brokers, name, topicMaxBytes)
	o := Options{Client: newClient(t, brokers, nil), Topic: name}
	first := resumed(t, o, 0, saved{at: 1})
	require.NoError(t, first.Write(t.Context(), numbered(service, 0, 1, 50)))
	mark, _ := first.Bookmark(0)
	_, err := log.admin.DeleteTopics(t.Context(), name)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := o.Client.Topic(t.Context(), name, 0)
		return err != nil
	}, time.Minute, 50*time.Millisecond)
	log = newTopic(t, brokers, name, topicMaxBytes)
	batch := numbered(service, 0, 50, 60)
	require.Eventually(t, func() bool { return first.Write(t.Context(), batch) == nil }, time.Minute, 100*time.Millisecond)
	require.NoError(t, resumed(t, o, 0, saved{50, mark}).Write(t.Context(), numbered(service, 0, 50, 65)))
	once(t, log, service, numbered(service, 0, 50, 65))
}

// A compacted record made room for a newer one of its entity: it is not written
// behind that.
func TestCompactedIsNotWrittenAgain(t *testing.T) {
	all := numbered(service, 0, 1, 20)
	p := &part{newest: map[uint64]change.Version{entityHash(all[12].Entity): all[12].Version}}
	require.True(t, p.contains(&all[2]), "an older one of the entity")
	require.False(t, p.contains(&all[17]), "a newer one")
	require.False(t, p.contains(&all[3]), "of another entity")
	all[2].Resent = change.NewVersion(1, 30)
	require.False(t, p.contains(&all[2]), "it is sent late on purpose")
}

// failedOf returns the changes of a batch to try again.
func failedOf(batch []change.Change, err error) (again []change.Change) {
	var be *sinks.BatchError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &be):
		return batch
	}
	for i := range batch {
		if be.Failed[i] != nil {
			again = append(again, batch[i])
		}
	}
	return again
}

// Processes die between any two steps, or go on as zombies; answers get lost. Each
// change is there once, in order.
func TestOnceWhateverHappens(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	client := newClient(t, brokers, nil)
	const partitions, last = 2, 120
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			dice := rand.New(rand.NewPCG(uint64(round), 1))
			log := newTopic(t, brokers, fmt.Sprint(prefix, "once-", round), topicMaxBytes)
			o := Options{Client: client, Topic: log.topic}
			store := [partitions]saved{{at: 1}, {at: 1}} // the log is in the store: it begins with a mark
			var zombies sync.WaitGroup
			for stop := false; !stop; {
				sink, at := newSink(t, o), store
				var claims []sinks.Takeover
				for p := range int32(partitions) {
					claims = append(claims, store[p].claim(p))
				}
				if err := sink.Resume(t.Context(), claims); err != nil {
					require.Equal(t, sinks.Retry, sinks.Classify(err).Class, "%v", err)
					continue
				}
				for p := range int32(partitions) {
					if at[p].mark == "" {
						at[p].mark, _ = sink.Bookmark(p)
						store[p] = at[p]
					}
				}
				for lives := dice.IntN(6); lives > 0 || dice.IntN(3) > 0; lives-- {
					var batch []change.Change
					to := at
					for p := range int32(partitions) {
						to[p].at = min(last, at[p].at+dice.Int64N(20))
						batch = append(batch, numbered(service, p, at[p].at, to[p].at)...)
					}
					for len(batch) > 0 && dice.IntN(20) > 0 {
						ctx, cancel := context.WithCancel(t.Context())
						if dice.IntN(3) == 0 {
							time.AfterFunc(time.Duration(dice.IntN(9))*time.Millisecond, cancel)
						}
						batch = failedOf(batch, sink.Write(ctx, batch))
						cancel()
					}
					if len(batch) > 0 || dice.IntN(5) == 0 { // it dies here, and may not know it
						zombies.Go(func() { _ = sink.Write(t.Context(), batch) })
						break
					}
					for p := range int32(partitions) {
						at[p].at = to[p].at
						if mark, above := sink.Bookmark(p); change.NewVersion(1, at[p].at) > above {
							at[p].mark = mark
						}
						if dice.IntN(2) == 0 {
							store[p] = at[p]
						}
					}
				}
				stop = store[0].at == last && store[1].at == last
			}
			zombies.Wait()
			once(t, log, service, append(numbered(service, 0, 1, last), numbered(service, 1, 1, last)...))
		})
	}
}

// zombieTopic and zombieBrokers are of a process that TestAProcessThatStoodStill starts.
const zombieTopic, zombieBrokers = "WEIR_TEST_ZOMBIE_TOPIC", "WEIR_TEST_ZOMBIE_BROKERS"

// zombieHalf is below what its successor writes; there the zombie waits until it was
// stopped, however long that takes.
const zombieHalf, zombieLast = 501, 20_000

// TestZombie is the process that is stopped: it writes until it is told not to.
func TestZombie(t *testing.T) {
	topic := os.Getenv(zombieTopic)
	if topic == "" {
		return // not started by the other test
	}
	o := Options{Client: newClient(t, strings.Split(os.Getenv(zombieBrokers), ","), nil), Topic: topic}
	sink := resumed(t, o, 0, saved{at: 1})
	for n := int64(1); n < zombieLast; n += 5 {
		if n == zombieHalf {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		if err := sink.Write(t.Context(), numbered(service, 0, n, n+5)); err != nil {
			fmt.Println("fenced:", err)
			return
		}
		fmt.Println("wrote", n)
	}
}

// A process pauses during its writes, and another one takes over and writes on; the rest
// of the first one is refused when it resumes.
func TestAProcessThatStoodStill(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"still", topicMaxBytes)
	o := Options{Client: newClient(t, brokers, nil), Topic: log.topic}
	first := resumed(t, o, 0, saved{at: 1})
	mark, _ := first.Bookmark(0)

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestZombie$")
	out := &watched{want: "wrote 26", seen: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = out, out
	// A mark has bytes that no variable takes: the zombie begins at the end, like first.
	cmd.Env = append(os.Environ(), zombieTopic+"="+log.topic, zombieBrokers+"="+strings.Join(brokers, ","))
	goOn, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	select {
	case <-out.seen:
	case <-time.After(time.Minute):
		require.Fail(t, "it does not write", out.String())
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	next := resumed(t, o, 0, saved{1, mark})
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 900)))
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, goOn.Close())
	require.NoError(t, cmd.Wait())
	require.Contains(t, out.String(), "fenced:")
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 900, 950)), "the zombie did not come back")
	require.Positive(t, next.Found())
	once(t, log, service, numbered(service, 0, 1, 950))
}

// watched keeps its input, and reports when a text is in it.
type watched struct {
	want string
	seen chan struct{}

	mu   sync.Mutex
	all  bytes.Buffer // guarded by mu
	told bool         // guarded by mu
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.all.Write(b)
	if !w.told && strings.Contains(w.all.String(), w.want) {
		w.told = true
		close(w.seen)
	}
	return n, err
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

// A user without the rights writes all the same, and it is said what that costs.
func TestWithoutRightsItIsAtLeastOnce(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	defer brokers.Close()
	brokers.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		brokers.KeepControl()
		if r.(*kmsg.InitProducerIDRequest).TransactionalID == nil {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp, nil, true
	})
	var said bytes.Buffer
	client := newClient(t, brokers.ListenAddrs(), nil)
	open := func(s saved) *Sink {
		sink, err := New(Options{Client: client, Topic: "t", Service: service, Pipeline: "weir", Logger: slog.New(slog.NewTextHandler(&said, nil))})
		require.NoError(t, err)
		require.NoError(t, sink.Resume(t.Context(), []sinks.Takeover{s.claim(0)}))
		return sink
	}
	first := open(saved{at: 1})
	mark, _ := first.Bookmark(0)
	require.NoError(t, first.Write(t.Context(), numbered(service, 0, 1, 10)))
	require.Contains(t, said.String(), "may come twice")
	require.Contains(t, said.String(), "weir.s/p@k.t.0")
	// It still reads the topic.
	next := open(saved{1, mark})
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 10)))
	require.EqualValues(t, 9, next.Found())

	brokers.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		brokers.KeepControl()
		req := r.(*kmsg.FetchRequest)
		resp := r.ResponseKind().(*kmsg.FetchResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewFetchResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewFetchResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.TopicAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	blind := open(saved{1, mark})
	require.NoError(t, blind.Write(t.Context(), numbered(service, 0, 1, 10)))
	require.Zero(t, blind.Found())
	require.Contains(t, said.String(), "TOPIC_AUTHORIZATION_FAILED")
}

// heldFetches makes a cluster of one broker with a topic in which the positions below 20 of
// partition 0 are in a batch each. held is called at each fetch, which then brings one batch.
func heldFetches(t *testing.T, held func()) (o Options, mark string) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	o = Options{Client: newClient(t, broker.ListenAddrs(), nil), Topic: "t"}
	first := resumed(t, o, 0, saved{at: 1})
	mark, _ = first.Bookmark(0)
	for n := range int64(19) {
		require.NoError(t, first.Write(t.Context(), numbered(service, 0, n+1, n+2)))
	}
	broker.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		r.(*kmsg.FetchRequest).Topics[0].Partitions[0].PartitionMaxBytes = 1
		broker.SleepControl(held)
		return nil, nil, false
	})
	return o, mark
}

// However much there is to read: as long as records arrive, one attempt continues.
func TestALongTailIsReadInOneAttempt(t *testing.T) {
	o, mark := heldFetches(t, func() { <-time.After(150 * time.Millisecond) })
	o.stallTimeout = 2 * time.Second
	start := time.Now()
	next := resumed(t, o, 0, saved{1, mark})
	require.Greater(t, time.Since(start), o.stallTimeout, "too little to read to show anything")
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 20)))
	require.EqualValues(t, 19, next.Found())
}

// An attempt that comes to nothing ends, and does not say that the cluster is down; a
// stop ends it at once.
func TestATailThatDoesNotCome(t *testing.T) {
	release := make(chan struct{})
	fetching := make(chan struct{}, 100)
	o, mark := heldFetches(t, func() {
		fetching <- struct{}{}
		<-release
	})
	t.Cleanup(func() { close(release) })
	ctx, stop := context.WithCancel(t.Context())
	sink, ended := newSink(t, o), make(chan error)
	go func() { ended <- sink.Resume(ctx, []sinks.Takeover{saved{1, mark}.claim(0)}) }()
	<-fetching
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)

	o.stallTimeout = 2 * time.Second // enough to get as far on a busy machine
	err := newSink(t, o).Resume(t.Context(), []sinks.Takeover{saved{1, mark}.claim(0)})
	require.ErrorIs(t, err, errStalled)
	e := sinks.Classify(err)
	require.Equal(t, sinks.Retry, e.Class)
	require.False(t, e.Ambiguous)
	require.False(t, e.Unreachable)
}
