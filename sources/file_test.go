package sources_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// positions is the store's part, in memory.
type positions struct {
	mu sync.Mutex
	at map[string]int64
}

func (p *positions) Position(_ context.Context, _, identity string) (store.SourcePosition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	offset, ok := p.at[identity]
	if !ok {
		return store.SourcePosition{}, store.ErrNotFound
	}
	return store.SourcePosition{Identity: identity, Offset: offset}, nil
}

func (p *positions) SetPosition(_ context.Context, s store.SourcePosition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at[s.Identity] = max(p.at[s.Identity], s.Offset)
	return nil
}

// file is a followed file.
type file struct {
	t         *testing.T
	path      string
	positions *positions
	complete  bool
	maxLine   int
}

func newFile(t *testing.T) *file {
	return &file{t: t, path: filepath.Join(t.TempDir(), "events.jsonl"), positions: &positions{at: map[string]int64{}}, maxLine: 100}
}

func (f *file) write(text string) { require.NoError(f.t, os.WriteFile(f.path, []byte(text), 0o644)) }

func (f *file) append(text string) {
	h, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(f.t, err)
	_, err = h.WriteString(text)
	require.NoError(f.t, err)
	require.NoError(f.t, h.Close())
}

// reading is one subscription.
type reading struct {
	t        *testing.T
	source   *sources.File
	messages <-chan *message.Message
}

func (f *file) read() *reading {
	s := sources.NewFile(sources.FileOptions{
		Name: "events", Path: f.path, Positions: f.positions, Complete: f.complete, MaxLine: f.maxLine, Window: 10, WindowBytes: 60,
		Poll: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	messages, err := s.Subscribe(context.Background(), "file:events")
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = s.Close() })
	return &reading{f.t, s, messages}
}

func (r *reading) next() *message.Message {
	r.t.Helper()
	select {
	case m, ok := <-r.messages:
		require.True(r.t, ok, "the source ended")
		return m
	case <-time.After(patience):
		require.FailNow(r.t, "no message")
		return nil
	}
}

// lines takes and acknowledges n lines.
func (r *reading) lines(n int) (lines []string) {
	r.t.Helper()
	for range n {
		m := r.next()
		lines = append(lines, string(m.Payload))
		m.Ack()
	}
	return lines
}

func (r *reading) close() { require.NoError(r.t, r.source.Close()) }

func (r *reading) nothing() {
	r.t.Helper()
	select {
	case m := <-r.messages:
		require.FailNow(r.t, "one more line", string(m.Payload))
	case <-time.After(30 * time.Millisecond): // many times the poll
	}
}

func TestFileResumesBehindWhatWasAcknowledged(t *testing.T) {
	f := newFile(t)
	f.write("1\n2\n\n3\n4\n5\n")
	r := f.read()
	one, two, three := r.next(), r.next(), r.next()
	one.Ack()
	three.Ack() // two is not
	p, _ := transport.PositionOf(two.Context())
	require.EqualValues(t, 2, p.Offset)
	require.EqualValues(t, 1, p.Seq)
	require.NotEmpty(t, p.TopicID)
	r.close()
	r = f.read()
	require.Equal(t, []string{"2", "3", "4", "5"}, r.lines(4))
	f.append("6\n")
	require.Equal(t, []string{"6"}, r.lines(1))
	r.close()
	f.append("7\n")
	require.Equal(t, []string{"7"}, f.read().lines(1))
}

// However many lines may be in flight, their bytes are bounded; one that is
// larger than the bound passes alone.
func TestFileBoundsTheBytesInFlight(t *testing.T) {
	f := newFile(t)
	a, b, large := strings.Repeat("a", 40), strings.Repeat("b", 20), strings.Repeat("c", 80)
	f.write(a + "\n" + b + "\n1\n" + large + "\n2\n")
	r := f.read()
	first, second := r.next(), r.next()
	r.nothing()
	second.Ack() // not before the first one
	r.nothing()
	first.Ack()
	third := r.next()
	require.Equal(t, "1", string(third.Payload))
	r.nothing()
	third.Ack()
	fourth := r.next()
	require.Equal(t, large, string(fourth.Payload))
	r.nothing()
	fourth.Ack()
	require.Equal(t, []string{"2"}, r.lines(1))
}

func TestFileNackedLineComesAgainUnderItsNumber(t *testing.T) {
	f := newFile(t)
	f.write("1\n2\n")
	r := f.read()
	one, two := r.next(), r.next()
	one.Nack()
	two.Ack()
	again := r.next()
	require.Equal(t, "1", string(again.Payload))
	was, _ := transport.PositionOf(one.Context())
	is, _ := transport.PositionOf(again.Context())
	require.Equal(t, was, is)
	again.Ack()
	r.close()
	f.append("3\n")
	require.Equal(t, []string{"3"}, f.read().lines(1))
}

func TestFileWaitsForTheEndOfALine(t *testing.T) {
	f := newFile(t)
	r := f.read() // not there yet
	f.append(`{"a":`)
	r.nothing()
	f.append("1}\n{\"b\"")
	require.Equal(t, []string{`{"a":1}`}, r.lines(1))
	r.nothing()
	f.append(":2}\n")
	require.Equal(t, []string{`{"b":2}`}, r.lines(1))
	r.nothing()
}

func TestFileReplaced(t *testing.T) {
	f := newFile(t)
	f.write("a1\na2\n")
	r := f.read()
	require.Len(t, r.lines(2), 2)
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	f.write("b1\nb2\n")
	require.Equal(t, []string{"b1", "b2"}, r.lines(2))
	r.close()
	// Both are known: the old one moved back is not read again.
	require.NoError(t, os.Rename(f.path+".1", f.path))
	r = f.read()
	r.nothing()
	f.append("a3\n")
	require.Equal(t, []string{"a3"}, r.lines(1))
}

func TestFileThatShrankIsReadFromItsStart(t *testing.T) {
	f := newFile(t)
	f.write("same\n2\n3\n4\n")
	r := f.read()
	first := r.next()
	first.Ack()
	require.Len(t, r.lines(3), 3)
	r.close()
	f.write("same\nnew\n")
	r = f.read()
	again := r.next()
	was, _ := transport.PositionOf(first.Context())
	is, _ := transport.PositionOf(again.Context())
	require.NotEqual(t, was.TopicID, is.TopicID, "or the fence would drop it")
	again.Ack()
	require.Equal(t, []string{"new"}, r.lines(1))
	r.close()
	f.append("more\n")
	r = f.read()
	require.Equal(t, []string{"more"}, r.lines(1))
	r.close()

	// Once more, and it grows beyond all old positions before a line is acknowledged.
	f.write("same\n")
	r = f.read()
	r.next()
	r.close()
	f.append(strings.Repeat("grown\n", 10))
	require.Equal(t, []string{"same", "grown"}, f.read().lines(2))
}

func TestFileLongLineIsCutAndTheNextOneIsWhole(t *testing.T) {
	f := newFile(t)
	f.write("1\n" + strings.Repeat("x", 1<<19) + "\n2\n")
	got := f.read().lines(3)
	require.Equal(t, []string{"1", "2"}, []string{got[0], got[2]})
	require.Equal(t, strings.Repeat("x", f.maxLine+1), got[1], "one more than the limit, so that ingest refuses it")
}

func TestFileComplete(t *testing.T) {
	f := newFile(t)
	f.complete = true
	f.write("1\n2\n3") // the last line counts
	r := f.read()
	require.Equal(t, []string{"1", "2"}, r.lines(2))
	three := r.next()
	require.Equal(t, "3", string(three.Payload))
	require.False(t, r.source.Drained())
	three.Ack()
	require.Eventually(t, r.source.Drained, patience, time.Millisecond)
	r.nothing() // its channel stays open: the router takes a closed one for a failure
	r.close()
	again := f.read()
	require.Eventually(t, again.source.Drained, patience, time.Millisecond)
	again.nothing()
}

func TestFileCompleteAndEmpty(t *testing.T) {
	f := newFile(t)
	f.complete = true
	f.write("")
	require.Eventually(t, f.read().source.Drained, patience, time.Millisecond)
}

func TestFileWindowIsTheLimit(t *testing.T) {
	f := newFile(t)
	f.write(strings.Repeat("x\n", 100))
	r := f.read()
	var held []*message.Message
	for range 11 { // 10 in the window and the one being looked at
		held = append(held, r.next())
	}
	r.nothing()
	for _, m := range held {
		m.Ack()
	}
	require.Len(t, r.lines(100-len(held)), 100-len(held))
}

func TestFileCloseTwiceAndSubscribeAfter(t *testing.T) {
	f := newFile(t)
	f.write("1\n")
	r := f.read()
	r.close()
	r.close()
	_, err := r.source.Subscribe(t.Context(), "x")
	require.Error(t, err)
}
