package deliver_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// floodStore has decided everything, in all partitions, and takes every position.
type floodStore struct {
	deliver.Store

	mu     sync.Mutex
	rows   map[int32]store.Progress
	frames map[int32][]kept
	file   *os.File // of their bodies, which do not count as memory
	size   int64
}

// kept is a frame, by its place in the file.
type kept struct {
	to       change.Version
	at, size int64
}

func (m *floodStore) Frames(_ context.Context, partition int32, after change.Version, bytes int) (tail store.Tail, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	tail.Owner = m.rows[partition].Token
	for _, f := range m.frames[partition] {
		if tail.LastTo = f.to; f.to > after && bytes > 0 {
			body := make([]byte, f.size)
			if _, err := m.file.ReadAt(body, f.at); err != nil {
				return tail, err
			}
			tail.Frames = append(tail.Frames, store.Frame{To: f.to, Body: body})
			bytes -= len(body)
		}
	}
	return tail, nil
}

func (m *floodStore) TakeProgress(_ context.Context, partitions []int32, token store.Token) (taken []store.Progress, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range partitions {
		m.rows[p] = store.Progress{Partition: p, Token: token, Positions: m.rows[p].Positions}
		taken = append(taken, m.rows[p])
	}
	return taken, nil
}

func (m *floodStore) SwapProgress(_ context.Context, _ int64, swaps []store.ProgressSwap) ([]bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := make([]bool, len(swaps))
	for i, s := range swaps {
		m.rows[s.Partition], done[i] = s.Progress, true
	}
	return done, nil
}

func (m *floodStore) AllProgress(context.Context) (all []store.Progress, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range m.rows {
		all = append(all, row)
	}
	return all, nil
}

// blocked is a sink whose writes wait for pass.
type blocked struct {
	traits  sinks.Traits
	arrived chan []change.Change
	pass    chan struct{} // closed: it holds nothing any more
}

func (b *blocked) Traits() sinks.Traits       { return b.traits }
func (b *blocked) Open(context.Context) error { return nil }
func (b *blocked) Close() error               { return nil }
func (b *blocked) Write(ctx context.Context, changes []change.Change) error {
	b.arrived <- append([]change.Change(nil), changes...)
	select {
	case <-b.pass:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flood is a stage with sinks that hold, and all of a changes log's partitions.
type flood struct {
	stage *deliver.Stage
	store *floodStore
	sinks []*blocked
	like  change.Change   // of which all differ in entity, version and key alone
	next  map[int32]int64 // inbox offset, by partition
	given atomic.Int64    // frames that were handed out
}

func newFlood(t *testing.T, services int, partitions int32, memory int64, traits sinks.Traits) *flood {
	file, err := os.Create(filepath.Join(t.TempDir(), "frames"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	m := &flood{like: of("", "", 0), next: map[int32]int64{}, store: &floodStore{rows: map[int32]store.Progress{}, frames: map[int32][]kept{}, file: file}}
	opt := deliver.Options{
		Revision: 1, Superseded: func() {}, Store: m.store, Memory: memory, Feed: transport.GroupConfig{ID: "changes", Topic: "changes", CloseTimeout: time.Second, Limit: context.Background()},
		Control:   func(context.Context, ...change.Record) error { return nil },
		Partition: func(string, change.Version) int32 { return 0 },
		InboxEnd:  func(context.Context, int32) (change.Version, error) { return at(1), nil },
		StopGrace: time.Millisecond, Logger: slog.New(slog.DiscardHandler), Metrics: deliver.NewMetrics(prometheus.NewRegistry()),
	}
	for i := range services {
		s := &blocked{traits: traits, arrived: make(chan []change.Change, 1<<16), pass: make(chan struct{})}
		m.sinks = append(m.sinks, s)
		opt.Services = append(opt.Services, deliver.Service{Name: fmt.Sprintf("c%d/all@out", i), Number: int32(i + 1), Sink: s})
	}
	m.stage = deliver.New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.stage.Run(ctx) }()
	messages, err := m.stage.Subscriber().Subscribe(ctx, "changes")
	require.NoError(t, err)
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for msg := range messages {
			if m.stage.Handle(msg) == nil {
				page, _ := transport.FrameOf(msg)
				m.given.Add(int64(len(page.Records)))
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-handled
		require.NoError(t, <-ended)
	})
	all := make([]int32, partitions)
	for p := range all {
		all[p] = int32(p)
	}
	require.NoError(t, m.stage.Assigned(t.Context(), all))
	return m
}

// decide makes and hands over the next frame of a partition, with changes of so many entities for every
// service.
func (m *flood) decide(partition int32, entities int) {
	n := m.next[partition]
	m.next[partition]++
	var b change.FrameBuilder
	for i := range m.sinks {
		for e := range entities {
			c := m.like
			c.Doc = bytes.Clone(c.Doc) // each change has a document of its own
			c.Entity, c.Version = fmt.Sprintf("%d/%d/%d", partition, n, e), at(n)
			b.Add(int32(i+1), &c)
		}
	}
	f := change.Frame{From: at(n), To: at(n + 1), Prev: at(n), Revision: 1}
	if n == 0 {
		f.Prev = 0 // there is none before it
	}
	row := store.Frame{Partition: store.Partition{Generation: 1, Number: partition}, To: f.To, Body: b.AppendTo(nil, f)}
	m.store.mu.Lock()
	if _, err := m.store.file.WriteAt(row.Body, m.store.size); err != nil {
		panic(err)
	}
	m.store.frames[partition] = append(m.store.frames[partition], kept{row.To, m.store.size, int64(len(row.Body))})
	m.store.size += int64(len(row.Body))
	m.store.mu.Unlock()
	m.stage.HandOver(&row)
}

// With 200,000 changes that wait for sinks, goroutines are of partitions and
// services.
func TestGoroutinesAreNotOfChanges(t *testing.T) {
	const services, partitions, frames, perFrame = 20, 8, 10, 1000
	before := runtime.NumGoroutine()
	m := newFlood(t, services, partitions, 4<<30, sinks.Traits{Kind: sinks.Log, MaxBatch: 500, Guarded: true})
	for n := range int32(frames) {
		m.decide(n%partitions, perFrame)
	}
	got := make([]int, services)
	for i, s := range m.sinks {
		got[i] = len(<-s.arrived) // each has a write under way
	}
	require.False(t, m.stage.Idle())
	require.LessOrEqual(t, runtime.NumGoroutine()-before, 100+10*services, "of 200,000 changes")
	for i, s := range m.sinks {
		close(s.pass)
		for got[i] < frames*perFrame {
			got[i] += len(<-s.arrived)
		}
		require.Equal(t, frames*perFrame, got[i])
	}
}

// Waiting changes of all partitions go out in one write: a table gets one statement.
func TestABatchIsOfAllPartitions(t *testing.T) {
	const partitions = 8
	m := newFlood(t, 2, partitions, 0, sinks.Traits{Kind: sinks.State, MaxBatch: 1000, Guarded: true})
	m.decide(0, 1)
	for _, s := range m.sinks {
		require.Len(t, <-s.arrived, 1)
	}
	for range 3 {
		for p := range int32(partitions) {
			m.decide(p, 10)
		}
	}
	require.Eventually(t, func() bool { return m.given.Load() == 1+3*partitions }, patience, time.Millisecond)
	for _, s := range m.sinks {
		close(s.pass)
		batch := <-s.arrived
		require.Len(t, batch, 3*partitions*10)
		of := map[string]int{}
		for _, c := range batch {
			of[c.Entity[:1]]++
		}
		require.Len(t, of, partitions)
	}
	require.Eventually(t, m.stage.Idle, patience, time.Millisecond)
	for _, s := range m.sinks {
		require.Empty(t, s.arrived, "nothing was left for another one")
	}
}

// inUse is the number of live bytes on the heap.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// I7: changes that a slow service cannot take stay in the log.
func TestI7WhatFallsBehindIsReleased(t *testing.T) {
	const memory = 16 << 20
	m := newFlood(t, 2, 1, memory, sinks.Traits{Kind: sinks.Log, MaxBatch: 8, Guarded: true})
	m.like.Doc = fmt.Appendf(nil, `"%08192d"`, 0)
	close(m.sinks[0].pass)
	before := inUse()
	for range 2 * memory / (8 * len(m.like.Doc)) {
		m.decide(0, 8)
		<-m.sinks[0].arrived
	}
	require.Equal(t, map[string]int{"c1/all@out": 1}, m.stage.Behind())
	require.Less(t, inUse()-before, int64(memory+memory/4), "with the newest frames")
}

// I7: the slices of one slow service do not keep whole frames, with the changes of all others,
// in memory.
func TestI7WhatWaitsIsApartFromItsFrame(t *testing.T) {
	const services, memory = 100, 1 << 20
	m := newFlood(t, services, 1, memory, sinks.Traits{Kind: sinks.Log, MaxBatch: 1, Guarded: true})
	m.like.Doc = fmt.Appendf(nil, `"%02048d"`, 0)
	others := m.sinks[1:]
	for _, s := range others {
		close(s.pass)
	}
	const frames = 200
	before := inUse()
	for range frames {
		m.decide(0, 1)
		for _, s := range others {
			<-s.arrived
		}
	}
	require.Less(t, inUse()-before, int64(4*memory), "of frames of %d bytes", frames*services*len(m.like.Doc))
	close(m.sinks[0].pass)
	for n := range int64(frames) {
		got := <-m.sinks[0].arrived
		require.Len(t, got, 1)
		want := m.like
		want.Service, want.Entity, want.Version = "c0/all@out", fmt.Sprintf("0/%d/0", n), at(n)
		want.Key = change.Key(want.Service, want.Entity, want.Version, want.Content)
		require.Equal(t, want, got[0])
	}
}
