package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/transport"
)

func comesBack(t *testing.T, f *fixture) {
	f.with(1, 0, 0)
	began := time.Now().Add(-time.Second)
	records := []transport.Record{
		{Topic: f.topic, Value: []byte("single")},
		{Topic: f.topic, Key: []byte("key"), Value: []byte("value"), Headers: []transport.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: nil}}},
		{Topic: f.topic, Key: []byte("gone"), Value: nil},
		{Topic: f.topic, Key: []byte{}, Value: []byte{}},
		{Topic: f.topic, Key: []byte("large"), Value: make([]byte, 900_000)},
	}
	for i := range records {
		records[i].Pinned = true // to partition 0
	}
	require.NoError(t, f.Append(f.within(), records))
	ch := f.subscribe(f.group(transport.GroupConfig{}))
	var got []transport.Received
	for len(got) < len(records) {
		m, frame := f.receive(ch)
		got = append(got, frame.Records...)
		m.Ack()
	}
	for i, r := range got {
		assert.EqualValues(t, i, r.Offset)
		assert.Equal(t, records[i].Value, r.Value, i)
		assert.Equal(t, records[i].Value == nil, r.Value == nil, i)
		assert.Equal(t, string(records[i].Key), string(r.Key), i)
		assert.WithinRange(t, r.Time, began, time.Now().Add(time.Second))
		require.Len(t, r.Headers, len(records[i].Headers))
		for j, h := range records[i].Headers {
			assert.Equal(t, h.Key, r.Headers[j].Key)
			assert.Equal(t, string(h.Value), string(r.Headers[j].Value))
		}
	}
}

func offsets(t *testing.T, f *fixture) {
	f.with(4, 0, 0)
	id, err := f.TopicID(t.Context(), f.topic)
	require.NoError(t, err)
	require.NotEmpty(t, id)
	want := map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}
	for range 3 {
		var records []transport.Record
		for i := range 50 {
			key := fmt.Appendf(nil, "k%d", i)
			records = append(records, transport.Record{Topic: f.topic, Key: key, Value: key})
			want[transport.PartitionOf(key, 4)]++
		}
		require.NoError(t, f.Append(f.within(), records))
	}
	start, end, err := f.Offsets(t.Context(), f.topic)
	require.NoError(t, err)
	require.Equal(t, want, end)
	require.Equal(t, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, start)
	next := map[int32]int64{}
	require.NoError(t, f.Scan(f.within(), f.topic, start, end, func(r transport.Scanned) error {
		require.Equal(t, next[r.Partition], r.Offset)
		require.Equal(t, transport.PartitionOf(r.Key, 4), r.Partition)
		next[r.Partition]++
		return nil
	}))
	require.Equal(t, want, next)
	again, err := f.TopicID(t.Context(), f.topic)
	require.NoError(t, err)
	require.Equal(t, id, again)
}

func inOrder(t *testing.T, f *fixture) {
	f.with(1, 10, 10)
	id, err := f.TopicID(t.Context(), f.topic)
	require.NoError(t, err)
	ch := f.subscribe(f.group(transport.GroupConfig{FrameRecords: 7}))
	var got []string
	for len(got) < 100 {
		m, frame := f.receive(ch)
		require.LessOrEqual(t, len(frame.Records), 7)
		require.EqualValues(t, len(got), frame.First())
		require.Equal(t, id, frame.TopicID)
		got = append(got, values(frame)...)
		select {
		case <-ch:
			require.FailNow(t, "the next one came before the acknowledgement")
		case <-time.After(2 * time.Millisecond):
		}
		m.Ack()
	}
	require.Equal(t, numbers(0, 100), got)
	f.fill(100, 5) // while it waits
	for len(got) < 105 {
		m, frame := f.receive(ch)
		require.False(t, frame.Records[0].Redelivered, "it is new")
		got = append(got, values(frame)...)
		m.Ack()
	}
	require.Equal(t, numbers(0, 105), got)
}

func refused(t *testing.T, f *fixture) {
	f.with(1, 0, 0)
	ch := f.subscribe(f.group(transport.GroupConfig{FrameRecords: 3}))
	f.fill(0, 6)
	m, first := f.receive(ch)
	for range 3 {
		m.Nack()
		var again *transport.Frame
		m, again = f.receive(ch)
		require.Equal(t, values(first), values(again))
		require.Equal(t, first.Assignment, again.Assignment)
		for i := range again.Records {
			require.True(t, again.Records[i].Redelivered)
		}
	}
	m.Ack()
	_, next := f.receive(ch)
	require.Equal(t, first.Last()+1, next.First())
}

func begins(t *testing.T, f *fixture) {
	f.with(2, 1, 10)
	before := transport.LastAssignment()
	l := &listener{at: map[int32]int64{0: 4, 1: 0}}
	g := f.group(transport.GroupConfig{Listener: l})
	_, frame := f.receive(f.subscribe(g))
	require.Equal(t, numbers(4, 10), values(frame))
	require.Greater(t, frame.Assignment, before)
	require.True(t, frame.Records[0].Redelivered, "an earlier process may have had it")
	require.NoError(t, g.Close())
	require.ElementsMatch(t, []int32{0, 1}, l.revoked)
}

func notThere(t *testing.T, f *fixture) {
	f.with(1, 1, 10)
	type lost struct{ wanted, got int64 }
	told := make(chan lost, 1)
	g := f.group(transport.GroupConfig{
		Listener:      &listener{at: map[int32]int64{0: 11}},
		OnRecordsLost: func(_ string, _ int32, wanted, got int64) { told <- lost{wanted, got} },
	})
	_, frame := f.receive(f.subscribe(g))
	require.EqualValues(t, 0, frame.First(), "the oldest, never the newest")
	require.Equal(t, lost{11, 0}, <-told)
	require.NoError(t, g.Close())

	g = f.group(transport.GroupConfig{Listener: &listener{at: map[int32]int64{0: 11}}, FailOnTruncation: true})
	f.subscribe(g)
	select {
	case <-g.Failed():
	case <-time.After(patience):
		require.FailNow(t, "it did not fail")
	}
	var truncated *transport.TruncatedError
	require.ErrorAs(t, g.Err(), &truncated)
	require.EqualValues(t, 11, truncated.Wanted)
	require.EqualValues(t, 10, truncated.End)
}

func grace(t *testing.T, f *fixture) {
	f.with(1, 1, 2)
	g := f.group(transport.GroupConfig{FrameRecords: 1, CloseTimeout: patience})
	sub := g.Subscriber()
	ch, err := sub.Subscribe(t.Context(), f.topic)
	require.NoError(t, err)
	m, _ := f.receive(ch)
	closed := make(chan error, 1)
	go func() { closed <- sub.Close() }()
	select {
	case _, more := <-ch:
		require.False(t, more, "nothing more is handed out")
	case <-time.After(patience):
		require.FailNow(t, "the channel stays open")
	}
	require.NoError(t, m.Context().Err(), "what is in flight has a grace")
	m.Ack()
	require.NoError(t, <-closed)
	_, err = sub.Subscribe(t.Context(), f.topic)
	require.ErrorIs(t, err, transport.ErrClosed)
	require.NoError(t, g.Close())
	// Without an acknowledgement the context ends after the grace.
	hasty := f.group(transport.GroupConfig{CloseTimeout: time.Millisecond})
	m, _ = f.receive(f.subscribe(hasty))
	require.NoError(t, hasty.Close())
	require.Error(t, m.Context().Err())
	_, err = hasty.Subscriber().Subscribe(t.Context(), f.topic)
	require.ErrorIs(t, err, transport.ErrClosed)
}

func listenerFails(t *testing.T, f *fixture) {
	f.with(1, 1, 1)
	cause := errors.New("no place is known")
	g := f.group(transport.GroupConfig{Listener: &listener{err: cause}})
	ch := f.subscribe(g)
	select {
	case <-g.Failed():
	case <-time.After(patience):
		require.FailNow(t, "it did not fail")
	}
	require.ErrorIs(t, g.Err(), cause)
	_, more := <-ch
	require.False(t, more)
	_, err := g.Subscriber().Subscribe(t.Context(), f.topic)
	require.ErrorIs(t, err, cause)
}

func goesOn(t *testing.T, f *fixture) {
	f.with(1, 1, 10)
	start := map[int32]int64{0: 0}
	g := f.group(transport.GroupConfig{FrameRecords: 4, Listener: &listener{at: start}})
	ch := f.subscribe(g)
	_, err := g.Subscriber().Subscribe(t.Context(), f.topic)
	require.ErrorIs(t, err, transport.ErrSubscribed)
	m, frame := f.receive(ch)
	require.Equal(t, numbers(0, 4), values(frame))
	m.Ack()
	f.receive(ch) // not acknowledged
	require.NoError(t, g.Close())
	start[0] = 4
	_, frame = f.receive(f.subscribe(f.group(transport.GroupConfig{Listener: &listener{at: start}})))
	require.EqualValues(t, 4, frame.First())
	require.True(t, frame.Records[0].Redelivered)
}

func looks(t *testing.T, f *fixture) {
	f.with(2, 2, 3)
	var middle time.Time
	require.NoError(t, f.Scan(f.within(), f.topic, map[int32]int64{0: 5, 1: 0}, map[int32]int64{0: 6, 1: 9}, func(r transport.Scanned) error {
		middle = r.Time.Add(time.Millisecond)
		return nil
	}))
	<-time.After(time.Until(middle.Add(3 * time.Millisecond)))
	f.fill(6, 2)
	at, err := f.OffsetsAt(t.Context(), f.topic, middle)
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: 6, 1: 0}, at)
	at, err = f.OffsetsAt(t.Context(), f.topic, time.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, map[int32]int64{0: 8, 1: 0}, at, "the end where there is none")
	var got []string
	stop := errors.New("enough")
	err = f.Scan(f.within(), f.topic, map[int32]int64{0: 2}, map[int32]int64{0: 7, 1: 3}, func(r transport.Scanned) error {
		got = append(got, string(r.Value))
		if r.Offset == 5 {
			return stop
		}
		return nil
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, numbers(2, 6), got)
	got = nil
	far := map[int32]int64{0: 1 << 40, 1: 1 << 40, 9: 1}
	require.NoError(t, f.Scan(f.within(), f.topic, map[int32]int64{0: -5, 1: 0, 9: 0}, far, func(r transport.Scanned) error {
		got = append(got, string(r.Value))
		return nil
	}), "beyond the ends there is nothing")
	require.Equal(t, numbers(0, 8), got)
}

func concurrent(t *testing.T, f *fixture) {
	f.with(3, 0, 0)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 10 {
				var records []transport.Record
				for p := range 3 {
					for i := range 4 {
						records = append(records, transport.Record{Topic: f.topic, Value: fmt.Appendf(nil, "%d %d", w, 4*n+i), Pinned: true, Partition: int32(p)})
					}
				}
				assert.NoError(t, f.Append(f.within(), records))
			}
		})
	}
	wg.Wait()
	start, end, err := f.Offsets(t.Context(), f.topic)
	require.NoError(t, err)
	got := map[string][]int{}
	require.NoError(t, f.Scan(f.within(), f.topic, start, end, func(r transport.Scanned) error {
		var writer, n int
		_, err := fmt.Sscan(string(r.Value), &writer, &n)
		key := fmt.Sprint(r.Partition, " ", writer)
		got[key] = append(got[key], n)
		return err
	}))
	require.Len(t, got, 24)
	for key, seen := range got {
		require.Len(t, seen, 40, key)
		require.True(t, slices.IsSorted(seen), "%s: %v", key, seen)
	}
}
