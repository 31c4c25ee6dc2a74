package file_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/transport"
	filesource "github.com/seed-86dfc502/weir/sources/file"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const patience = 60 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// positions is the store's part, in memory.
type positions struct {
	mu   sync.Mutex
	at   map[string]store.SourcePosition
	away bool
}

var errAway = errors.New("the store is away")

// leave says whether the store is away.
func (p *positions) leave(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
}

func (p *positions) Position(_ context.Context, _, identity string) (store.SourcePosition, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return store.SourcePosition{}, errAway
	}
	at, ok := p.at[identity]
	if !ok {
		return store.SourcePosition{}, store.ErrNotFound
	}
	return at, nil
}

func (p *positions) SetPosition(_ context.Context, s store.SourcePosition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return errAway
	}
	if p.at[s.Identity].Offset <= s.Offset {
		p.at[s.Identity] = s
	}
	return nil
}

// all returns the positions by identity.
func (p *positions) all() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]int64{}
	for identity, at := range p.at {
		all[identity] = at.Offset
	}
	return all
}

// file is a followed file.
type file struct {
	t         *testing.T
	path      string
	positions *positions
	complete  bool
	maxLine   int
	linger    time.Duration
	poll      time.Duration
	lost      func(topic string, partition int32, from, to int64)
}

func newFile(t *testing.T) *file {
	return &file{t: t, path: filepath.Join(t.TempDir(), "events.jsonl"), positions: &positions{at: map[string]store.SourcePosition{}}, maxLine: 100, linger: time.Millisecond, poll: time.Millisecond}
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
	source   *filesource.Source
	messages <-chan *message.Message
}

func (f *file) read() *reading {
	s := filesource.New(filesource.Options{
		Name: "events", Path: f.path, Positions: f.positions, Complete: f.complete, MaxLine: f.maxLine,
		Poll: f.poll, Linger: f.linger, OnLinesLost: f.lost, Logger: slog.New(slog.DiscardHandler),
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

// frame returns a message's frame.
func frame(t *testing.T, m *message.Message) *transport.Frame {
	t.Helper()
	f, ok := transport.FrameOf(m)
	require.True(t, ok)
	return f
}

// values returns a frame's records as text.
func values(t *testing.T, m *message.Message) (values []string) {
	t.Helper()
	for _, r := range frame(t, m).Records {
		values = append(values, string(r.Value))
	}
	return values
}

// lines takes and acknowledges frames with n lines.
func (r *reading) lines(n int) (lines []string) {
	r.t.Helper()
	for len(lines) < n {
		m := r.next()
		lines = append(lines, values(r.t, m)...)
		m.Ack()
	}
	require.Len(r.t, lines, n)
	return lines
}

func (r *reading) drained() bool {
	drained, err := r.source.Drained(r.t.Context())
	return err == nil && drained
}

func (r *reading) close() { require.NoError(r.t, r.source.Close()) }

func (r *reading) nothing() {
	r.t.Helper()
	select {
	case m := <-r.messages:
		require.FailNow(r.t, "one more frame", values(r.t, m))
	case <-time.After(30 * time.Millisecond): // many times the poll
	}
}

func TestFileResumesBehindWhatWasAcknowledged(t *testing.T) {
	f := newFile(t)
	f.write("1\n2\n")
	r := f.read()
	first := r.next()
	require.Equal(t, []string{"1", "2"}, values(t, first))
	f.append("\n3\n4\n")
	first.Ack()
	second := r.next() // never acknowledged
	require.Equal(t, []string{"3", "4"}, values(t, second))
	one, two := frame(t, first), frame(t, second)
	require.Equal(t, []int64{0, 2, 5, 7}, []int64{one.First(), one.Last(), two.First(), two.Last()})
	require.NotEmpty(t, one.TopicID)
	require.Equal(t, one.TopicID, two.TopicID)
	require.Equal(t, "file:events", two.Topic)
	require.False(t, two.Records[0].Redelivered)
	r.close()
	r = f.read()
	again := r.next()
	require.Equal(t, []string{"3", "4"}, values(t, again))
	require.Equal(t, second.UUID, again.UUID, "the place of a line is its name")
	again.Ack()
	f.append("5\n")
	require.Equal(t, []string{"5"}, r.lines(1))
	r.close()
	f.append("6\n")
	require.Equal(t, []string{"6"}, f.read().lines(1))
}

// The position is never stored before the acknowledgement, and is stored when
// the source has ended.
func TestFilePositionIsStoredBehindTheAcknowledgement(t *testing.T) {
	f := newFile(t)
	f.write("1\n2\n\n")
	r := f.read()
	m := r.next()
	require.Empty(t, f.positions.all())
	m.Ack()
	r.close()
	require.Equal(t, map[string]int64{frame(t, m).TopicID: 5}, f.positions.all(), "blank lines have no record, but a length")
}

// A frame is one in work, and one that is read meanwhile.
func TestFileBoundsAFrame(t *testing.T) {
	f := newFile(t)
	f.maxLine = 8 << 20
	large := func(c string, size int) string { return strings.Repeat(c, size) }
	f.write(strings.Repeat("x\n", 4500) + large("a", 3<<20) + "\n" + large("b", 3<<20) + "\n" + large("c", 5<<20) + "\ny\n")
	r := f.read()
	var lengths []int
	for range 6 {
		m := r.next()
		r.nothing() // nothing more before the answer
		lengths = append(lengths, len(frame(t, m).Records))
		m.Ack()
	}
	require.Equal(t, []int{2000, 2000, 501, 1, 1, 1}, lengths)
}

// A frame does not wait to be full; lines that arrive during one go into the next.
func TestFileFrameIsWhatPiledUp(t *testing.T) {
	f := newFile(t)
	f.write("1\n")
	r := f.read()
	first := r.next()
	require.Equal(t, []string{"1"}, values(t, first))
	require.Equal(t, "1", string(first.Payload), "a frame of one line is also a plain message")
	f.append("2\n3\n4\n")
	r.nothing()
	first.Ack()
	require.Equal(t, []string{"2", "3", "4"}, values(t, r.next()))
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
	r.close()
	f.read().nothing() // it is known by its first line as it is, not by what the look found that saw its end
}

// A path that can be opened may still be no file.
func TestFileThatCannotBeReadFails(t *testing.T) {
	f := newFile(t)
	require.NoError(t, os.Mkdir(f.path, 0o755))
	r := f.read()
	require.Eventually(t, func() bool { return r.source.Failing() != nil }, patience, time.Millisecond)
	require.ErrorContains(t, r.source.Failing(), "is a directory")
	require.NoError(t, os.Remove(f.path))
	f.write("1\n")
	require.Equal(t, []string{"1"}, r.lines(1))
	require.NoError(t, r.source.Failing())
}

// No line of UTF-16 is JSON: that is one failure of the file, not a dead letter each line.
func TestFileInUTF16Fails(t *testing.T) {
	for _, mark := range []string{"\xff\xfe", ""} {
		f := newFile(t)
		f.write(mark + "{\x00}\x00\n\x00{\x00}\x00\n\x00")
		r := f.read()
		require.Eventually(t, func() bool { return r.source.Failing() != nil }, patience, time.Millisecond)
		require.ErrorContains(t, r.source.Failing(), "UTF-16")
		r.nothing()
		f.write("\xef\xbb\xbf{}\n\xef\xbb\xbf\n2\n")
		require.Equal(t, []string{"\xef\xbb\xbf{}", "2"}, r.lines(2), "ingest skips the mark")
		require.NoError(t, r.source.Failing())
		r.close()
	}
}

// A file that was opened while the store is away is neither lost nor taken for an
// empty one.
func TestFileWaitsForTheStore(t *testing.T) {
	for name, complete := range map[string]bool{"followed": false, "complete": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFile(t)
				f.complete = complete
				f.write("1\n2\n")
				f.positions.leave(true)
				r := f.read()
				r.nothing()
				require.False(t, r.drained())
				f.positions.leave(false)
				require.Equal(t, []string{"1", "2"}, r.lines(2))
				r.close()
				f.read().nothing()
			})
		})
	}
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
	m := r.next()
	require.Equal(t, []string{"1", "2", "3"}, values(t, m))
	require.False(t, r.drained())
	m.Ack()
	require.Eventually(t, r.drained, patience, time.Millisecond)
	r.nothing() // its channel stays open: the router takes a closed one for a failure
	r.close()
	again := f.read()
	require.Eventually(t, again.drained, patience, time.Millisecond)
	again.nothing()
}

// The rest is estimated in lines as long as those that were read: here all are.
func TestFileSaysHowMuchItHolds(t *testing.T) {
	f := newFile(t)
	f.maxLine, f.linger = 1000, time.Hour
	r := f.read()
	pending := func(want int64) {
		t.Helper()
		require.Eventually(t, func() bool {
			n, err := r.source.Pending(t.Context())
			return err == nil && n == want
		}, patience, time.Millisecond)
	}
	pending(0) // there is no file
	f.write("1\n2\n3\n")
	first := r.next()
	_, err := r.source.Pending(t.Context())
	require.Error(t, err, "nobody knows how long lines are")
	first.Ack()
	pending(0)
	f.append("4\n5\n")
	pending(2)
	second := r.next()
	pending(2)
	require.NoError(t, os.Rename(f.path, f.path+".1"))
	pending(2)
	f.write("6\n7\n8\n9\n")
	pending(6)
	second.Ack()
	pending(4)
	r.close()

	f.complete = true
	r = f.read()
	require.Len(t, r.lines(4), 4)
	require.Eventually(t, r.drained, patience, time.Millisecond)
	pending(0)
}

func TestFileCompleteAndEmpty(t *testing.T) {
	f := newFile(t)
	f.complete = true
	f.write("")
	require.Eventually(t, f.read().drained, patience, time.Millisecond)
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
