package postgres

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

const (
	testPatience = time.Minute
	testPoll     = 10 * time.Millisecond
)

var p0 = store.Partition{Generation: 1}

// Whether or not a lost connection cut off a commit, the class must be right:
// Unknown as soon as COMMIT may have been sent, and then a takeover shows what
// happened. The proxy cuts at both places that a client cannot tell apart.
func TestConnectionLostAtCommit(t *testing.T) {
	for name, c := range map[string]struct {
		cut       cut
		committed bool
	}{
		"before the server got it":   {beforeCommit, false},
		"before its answer came":     {afterCommit, true},
		"before the writes were out": {beforeWrites, false},
	} {
		t.Run(name, func(t *testing.T) {
			direct, location := migrated(t)
			proxy := newProxy(t, location)
			s := handle(t, proxy.url)
			revision, err := direct.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
			require.NoError(t, err)
			_, err = s.TakeOver(t.Context(), []store.Partition{p0}, store.Token{1})
			require.NoError(t, err)
			decide := func(from int64, cut cut) error {
				return s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: store.Token{1}}}},
					func(store.Loaded) (store.Outcome, error) {
						proxy.arm(cut)
						return store.Outcome{Frames: []store.Frame{{Partition: p0, To: change.NewVersion(1, from+1), Body: []byte(marker)}}}, nil
					})
			}
			require.NoError(t, decide(0, never), "warms the statements up")
			err = decide(1, c.cut)
			require.Error(t, err)
			assert.Equal(t, store.Unknown, store.ClassOf(err), "%v", err)

			taken, err := direct.TakeOver(t.Context(), []store.Partition{p0}, store.Token{2})
			require.NoError(t, err)
			want := int64(1)
			if c.committed {
				want = 2
			}
			assert.Equal(t, want, taken[0].NextOffset)
			assert.Len(t, frames(t, direct), int(want))
			assert.ErrorIs(t, decide(1, never), store.ErrFenced, "and the pool has healed itself")
		})
	}
}

// An owner that has everything in its memory decides in one round trip, one that
// looks up missing rows in two, one that loads entities and looks up in three.
func TestRoundTripsOfADecision(t *testing.T) {
	direct, location := migrated(t)
	proxy := newProxy(t, location)
	s := handle(t, proxy.url)
	revision, err := direct.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = direct.TakeOver(t.Context(), []store.Partition{p0}, store.Token{1})
	require.NoError(t, err)
	next := int64(0)
	decide := func(entities ...string) int64 {
		before := proxy.trips.Load()
		err := s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: p0, From: next, To: next + 1, Token: store.Token{1}}}, Entities: entities},
			func(loaded store.Loaded) (store.Outcome, error) {
				states := storetest.StatesOf(store.Row{Key: store.Key{Service: int32(next)}}, store.Row{Key: store.Key{Service: store.PageServices}})
				return store.Outcome{Entities: []store.Entity{{ID: "e", Writes: next, States: states}},
					Frames: []store.Frame{{Partition: p0, To: change.NewVersion(1, next+1), Body: []byte("f")}}}, nil
			})
		require.NoError(t, err)
		next++
		return proxy.trips.Load() - before
	}
	for range 2 { // the first round prepares the statements
		decide()
		decide("e")
	}
	assert.EqualValues(t, 1, decide())
	assert.EqualValues(t, 2, decide("e"))
}

// A swap of unknown outcome may be repeated: what did swap has the new token.
func TestSwapProgressConnectionLostAtCommit(t *testing.T) {
	direct, location := migrated(t)
	proxy := newProxy(t, location)
	s := handle(t, proxy.url)
	revision, err := direct.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = direct.TakeProgress(t.Context(), []int32{0}, store.Token{1})
	require.NoError(t, err)
	next := store.Token([]byte(marker))
	swap := func() ([]bool, error) {
		return s.SwapProgress(t.Context(), revision.Number, []store.ProgressSwap{{Old: store.Token{1}, Progress: store.Progress{Token: next}}})
	}
	for _, c := range []cut{beforeWrites, afterCommit} {
		proxy.arm(c)
		_, err = swap()
		assert.Equal(t, store.Unknown, store.ClassOf(err), "%v", err)
		all, err := direct.AllProgress(t.Context())
		require.NoError(t, err)
		assert.Equal(t, c == afterCommit, all[0].Token == next)
	}
	swapped, err := swap()
	require.NoError(t, err)
	assert.Equal(t, []bool{false}, swapped)
}

// What adds to a report must know whether it did.
func TestReportConnectionLostAtCommit(t *testing.T) {
	direct, location := migrated(t)
	proxy := newProxy(t, location)
	s := handle(t, proxy.url)
	update := func() error {
		return s.UpdateReport(t.Context(), "noise", "today", func(body []byte) ([]byte, error) { return append(body, marker...), nil })
	}
	proxy.arm(beforeCommit)
	err := update()
	assert.Contains(t, []store.Class{store.Retry, store.Unknown}, store.ClassOf(err), "%v", err)
	proxy.arm(afterCommit)
	err = update()
	assert.Equal(t, store.Unknown, store.ClassOf(err), "%v", err)
	reports, err := direct.ListReports(t.Context(), "noise")
	require.NoError(t, err)
	require.Len(t, reports, 1)
	assert.Equal(t, marker, string(reports[0].Body))
}

// A batch that broke while its statements were prepared was never sent, so nothing of
// it was committed.
func TestABatchThatWasNotPreparedIsRepeated(t *testing.T) {
	assert.Equal(t, store.Retry, store.ClassOf(classifyCommit(fmt.Errorf("swap: %w", pgx.ErrPreprocessingBatch{}))))
	assert.Equal(t, store.Unknown, store.ClassOf(classifyCommit(io.ErrUnexpectedEOF)))
}

// A server that is killed returns errors that a caller may wait out, and resumes
// where it was, with all acknowledged writes.
func TestServerKilled(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	s := handle(t, server.Address)
	require.NoError(t, s.Migrate(t.Context()))
	revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = s.TakeOver(t.Context(), []store.Partition{p0}, store.Token{1})
	require.NoError(t, err)
	decide := func(from int64, during func()) error {
		return s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 1, Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) {
				during()
				return store.Outcome{Frames: []store.Frame{{Partition: p0, To: change.NewVersion(1, from+1), Body: []byte("x")}}}, nil
			})
	}
	require.NoError(t, decide(0, func() {}))
	_, err = s.TakeProgress(t.Context(), []int32{0, 1}, store.Token{1})
	require.NoError(t, err)
	swap := func(partition int32, old, next byte) ([]bool, error) {
		return s.SwapProgress(t.Context(), revision.Number, []store.ProgressSwap{{Old: store.Token{old}, Progress: store.Progress{Partition: partition, Token: store.Token{next},
			Positions: []store.ServicePosition{{Service: 1, Entities: int64(next)}}}}})
	}
	swapped, err := swap(0, 1, 2)
	require.NoError(t, err)
	require.Equal(t, []bool{true}, swapped)
	err = decide(1, server.Kill)
	require.Error(t, err)
	assert.Contains(t, []store.Class{store.Retry, store.Unknown}, store.ClassOf(err), "%v", err)
	for name, call := range map[string]func() error{
		"ping":   func() error { return s.Ping(t.Context()) },
		"decide": func() error { return decide(1, func() {}) },
		"progress": func() error {
			_, err := swap(0, 2, 3)
			return err
		},
	} {
		err := call()
		require.Error(t, err, name)
		assert.Equal(t, store.Retry, store.ClassOf(err), "%s: %v", name, err)
	}
	server.Start()
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, testPatience, testPoll)
	// It may have been restored meanwhile, with this token and offset: the memory of the owner
	// may be of a lost future.
	require.ErrorIs(t, decide(1, func() {}), store.ErrFenced)
	err = s.Decide(t.Context(), store.Decision{Revision: revision.Number, Entities: []string{"x"},
		Moves: []store.WatermarkStep{{Partition: p0, From: 1, To: 2, Token: store.Token{1}}}},
		func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, nil })
	require.ErrorIs(t, err, store.ErrFenced)
	taken, err := s.TakeOver(t.Context(), []store.Partition{p0}, store.Token{2})
	require.NoError(t, err)
	assert.Equal(t, int64(1), taken[0].NextOffset, "the acknowledged decision, not the one that was cut off")
	assert.Len(t, frames(t, s), 1)

	// The server may have been restored before it was started: no owner continues after an
	// earlier takeover, and no acknowledged write is lost.
	for partition, token := range map[int32]byte{0: 2, 1: 1} {
		swapped, err := swap(partition, token, 9)
		require.NoError(t, err)
		assert.Equal(t, []bool{false}, swapped)
	}
	again, err := s.TakeProgress(t.Context(), []int32{0, 1}, store.Token{4})
	require.NoError(t, err)
	assert.Equal(t, int64(2), again[0].Positions[0].Entities)
	assert.Empty(t, again[1].Positions)
	for partition := range int32(2) {
		swapped, err = swap(partition, 4, 5)
		require.NoError(t, err)
		assert.Equal(t, []bool{true}, swapped)
	}
}

// frames reads the log of partition 0.
func frames(t *testing.T, s *Store) []store.Frame {
	t.Helper()
	tail, err := s.Frames(t.Context(), 0, 0, 1<<30)
	require.NoError(t, err)
	return tail.Frames
}

// cut says where the proxy ends the connection.
type cut int

const (
	never        cut = iota
	beforeWrites     // nothing of the last pipeline reaches the server
	beforeCommit     // the writes reach it, the COMMIT does not
	afterCommit      // the COMMIT reaches it and succeeds, its answer is lost
)

// marker is in the written rows, so that the proxy knows the pipeline. It is as long as
// a token.
const marker = "marker for proxy"

// proxy is between a store and the server and cuts one connection when it
// is armed.
type proxy struct {
	url      string
	mu       sync.Mutex
	armed    cut
	listener net.Listener
	target   string
	pipes    sync.WaitGroup
	trips    atomic.Int64 // how often a client spoke after an answer
}

func newProxy(t *testing.T, location string) *proxy {
	u, err := url.Parse(location)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: u.Host}
	u.Host = listener.Addr().String()
	p.url = u.String()
	p.pipes.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.pipes.Go(func() { p.pipe(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.pipes.Wait() // the handles closed their connections before
	})
	return p
}

func (p *proxy) arm(c cut) {
	p.mu.Lock()
	p.armed = c
	p.mu.Unlock()
}

// take returns the cut and disarms.
func (p *proxy) take() cut {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.armed
	p.armed = never
	return c
}

// pipe copies one connection. The pipeline to cut is the one that carries the
// marker; its last messages are Bind, Describe and Execute of COMMIT, and Sync.
func (p *proxy) pipe(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	var swallow atomic.Bool // answers, from now on
	var answered atomic.Bool
	answered.Store(true)
	p.pipes.Go(func() {
		defer client.Close()
		buffer, answer := make([]byte, 1<<16), []byte(nil)
		for {
			n, err := server.Read(buffer)
			if err != nil {
				return
			}
			if swallow.Load() {
				if answer = append(answer, buffer[:n]...); bytes.Contains(answer, []byte("COMMIT\x00")) {
					return // committed, and the client will never know
				}
			} else {
				answered.Store(true)
				if _, err := client.Write(buffer[:n]); err != nil {
					return
				}
			}
		}
	})
	buffer := make([]byte, 1<<16)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		chunk := buffer[:n]
		// A pool asks a connection that was idle for a second whether it works.
		if answered.Swap(false) && !bytes.Contains(chunk, []byte("-- ping")) {
			p.trips.Add(1)
		}
		if bytes.Contains(chunk, []byte(marker)) {
			switch p.take() {
			case beforeWrites:
				return
			case beforeCommit:
				_, _ = server.Write(chunk[:bytes.LastIndexByte(chunk, 'B')])
				return
			case afterCommit:
				swallow.Store(true)
			}
		}
		if _, err := server.Write(chunk); err != nil {
			return
		}
	}
}
