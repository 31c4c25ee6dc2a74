package fenced

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t testing.TB, brokers []string) *Client {
	t.Helper()
	c, err := New(transport.Config{Brokers: brokers})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// newTopic makes a topic on the test server and waits until it has leaders.
func newTopic(t testing.TB, c *Client, name string, partitions int32, settings map[string]*string) *Topic {
	t.Helper()
	_, err := kadm.NewClient(c.cl).CreateTopic(t.Context(), partitions, 1, settings, name)
	require.NoError(t, err)
	return led(t, c, name)
}

func led(t testing.TB, c *Client, name string) (topic *Topic) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		topic, err = c.Topic(t.Context(), name, 0)
		if err != nil {
			return false
		}
		for _, l := range topic.leaders {
			if l < 0 {
				return false
			}
		}
		_, err = c.Ends(t.Context(), topic)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	return topic
}

func records(values ...string) [][]byte {
	all := make([][]byte, len(values))
	for i, v := range values {
		all[i] = record("k"+v, v)
	}
	return all
}

// record encodes a record with a header.
func record(key, value string) []byte {
	var b []byte
	for _, text := range []string{key, value} {
		b = append(binary.AppendVarint(b, int64(len(text))), text...)
	}
	b = binary.AppendVarint(b, 1)
	for _, text := range []string{"h", value} {
		b = append(binary.AppendVarint(b, int64(len(text))), text...)
	}
	return b
}

// whole returns the values of a topic, by partition, for readers of uncommitted records.
func whole(t testing.TB, c *Client, topic *Topic) [][]string {
	t.Helper()
	ends, err := c.Ends(t.Context(), topic)
	require.NoError(t, err)
	all := make([][]string, topic.Partitions())
	_, err = c.Read(t.Context(), topic, nil, ends, func(records []*kgo.Record) {
		for _, r := range records {
			all[r.Partition] = append(all[r.Partition], string(r.Value))
		}
	})
	require.NoError(t, err)
	return all
}

func one(t testing.TB, c *Client, topic *Topic, b *Batch) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Append(ctx, topic, []*Batch{b})[0]
}

// A leader refuses every batch that a predecessor made before it was fenced, in
// every partition, also one that it never wrote to and that has no other record.
func TestAPredecessorIsFenced(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	c := newClient(t, brokers)
	topic := newTopic(t, c, prefix+"fence", 3, nil)
	old, err := c.Fence(t.Context(), prefix+"id", topic)
	require.NoError(t, err)
	require.NoError(t, one(t, c, topic, old.Batch(0, records("a", "b"))).Err)
	late := []*Batch{old.Batch(0, records("late")), old.Batch(1, records("late")), old.Batch(2, records("late"))}

	next, err := c.Fence(t.Context(), prefix+"id", topic)
	require.NoError(t, err)
	for p, b := range late {
		a := one(t, c, topic, b)
		require.True(t, Ended(a.Err), "partition %d: %v", p, a.Err)
		require.True(t, a.Refused)
	}
	require.NoError(t, one(t, c, topic, next.Batch(0, records("c"))).Err)
	require.NoError(t, one(t, c, topic, next.Batch(2, records("d"))).Err)
	require.NoError(t, one(t, c, topic, next.Batch(0, records("e"))).Err)
	require.Equal(t, [][]string{{"a", "b", "c", "e"}, nil, {"d"}}, whole(t, c, topic))
}

// A batch that is sent again with its numbers is there once.
func TestARepetitionIsKnown(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	c := newClient(t, brokers)
	topic := newTopic(t, c, prefix+"again", 1, nil)
	w, err := c.Fence(t.Context(), prefix+"id", topic)
	require.NoError(t, err)
	for n := range 3 {
		b := w.Batch(0, records(fmt.Sprint(n)))
		first := one(t, c, topic, b)
		require.NoError(t, first.Err)
		again := one(t, c, topic, b)
		require.NoError(t, again.Err)
		require.Equal(t, first.Offset, again.Offset)
	}
	require.Equal(t, [][]string{{"0", "1", "2"}}, whole(t, c, topic))
}

// An attempt without an answer may be in the topic, also when a later one is refused.
func TestARefusalClearsNoDoubt(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	require.NoError(t, err)
	defer cluster.Close()
	c := newClient(t, cluster.ListenAddrs())
	topic := led(t, c, "t")
	w, err := c.Anyone(t.Context())
	require.NoError(t, err)
	for _, errs := range [][]*kerr.Error{{kerr.RequestTimedOut, kerr.MessageTooLarge}, {kerr.MessageTooLarge}} {
		attempt := 0
		cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
			if attempt == len(errs) {
				return nil, nil, false
			}
			cluster.KeepControl()
			req := r.(*kmsg.ProduceRequest)
			resp := req.ResponseKind().(*kmsg.ProduceResponse)
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.ErrorCode = errs[attempt].Code
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			attempt++
			return resp, nil, true
		})
		a := one(t, c, topic, w.Batch(0, records("x")))
		require.ErrorIs(t, a.Err, kerr.MessageTooLarge)
		require.Equal(t, len(errs), attempt)
		require.Equal(t, len(errs) == 1, a.Refused)
	}
}

// After the largest sequence number comes 0, also inside a batch.
func TestSequenceNumbersWrap(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	c := newClient(t, brokers)
	topic := newTopic(t, c, prefix+"wrap", 1, nil)
	w, err := c.Anyone(t.Context())
	require.NoError(t, err)
	w.next[0] = math.MaxInt32 - 1
	require.NoError(t, one(t, c, topic, w.Batch(0, records("a", "b", "c"))).Err)
	require.EqualValues(t, 1, w.next[0])
	require.NoError(t, one(t, c, topic, w.Batch(0, records("d"))).Err)
	require.Equal(t, [][]string{{"a", "b", "c", "d"}}, whole(t, c, topic))
}

// A refused batch leaves no hole behind.
func TestARefusedBatchIsGivenBack(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	c := newClient(t, brokers)
	limit := "2000"
	topic := newTopic(t, c, prefix+"small", 1, map[string]*string{"max.message.bytes": &limit, "compression.type": ptr("producer")})
	w, err := c.Fence(t.Context(), prefix+"id", topic)
	require.NoError(t, err)
	large := make([]byte, 5000)
	_, _ = rand.Read(large) // it never fails
	b := w.Batch(0, [][]byte{record("k", string(large))})
	a := one(t, c, topic, b)
	require.ErrorIs(t, a.Err, kerr.MessageTooLarge)
	require.True(t, a.Refused)
	require.False(t, Ended(a.Err))
	w.Unsend(b)
	require.NoError(t, one(t, c, topic, w.Batch(0, records("x"))).Err)
	require.Equal(t, [][]string{{"x"}}, whole(t, c, topic))
}

func ptr(s string) *string { return &s }
