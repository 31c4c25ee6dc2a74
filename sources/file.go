package sources

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"golang.org/x/sync/semaphore"
)

// FileOptions of a File source.
type FileOptions struct {
	Name      string // of the source
	Path      string
	Positions store.Positions
	// Complete says that the file does not grow any more: the source is
	// drained at its end, and a last line without line feed counts. Otherwise
	// the file is followed, and such a line is waited for.
	Complete bool
	// MaxLine is the longest line in bytes; of a longer one the first MaxLine+1
	// bytes are handed out, which ingest refuses by its limit. Defaults to 8 MiB.
	MaxLine int
	// Window is how many lines are in flight. Defaults to 4000.
	Window int
	// WindowBytes bounds the same by size; a larger line passes alone. Defaults
	// to 32 MiB.
	WindowBytes int64
	// Poll is how often a followed file is looked at. Defaults to 250ms.
	Poll   time.Duration
	Logger *slog.Logger
}

// File reads a file with one JSON event per line and resumes where it was. The
// file is known by its first line: one that was replaced is read from its
// start under a new identity, and so is one that became shorter.
type File struct {
	opt     FileOptions
	log     *slog.Logger
	claims  atomic.Uint64
	drained atomic.Bool

	mu     sync.Mutex
	stop   []context.CancelFunc
	wg     sync.WaitGroup
	closed bool
}

// NewFile makes a source; nothing is read before Subscribe.
func NewFile(opt FileOptions) *File {
	if opt.MaxLine <= 0 {
		opt.MaxLine = 8 << 20
	}
	if opt.Window <= 0 {
		opt.Window = 4000
	}
	if opt.WindowBytes <= 0 {
		opt.WindowBytes = 32 << 20
	}
	if opt.Poll <= 0 {
		opt.Poll = 250 * time.Millisecond
	}
	return &File{opt: opt, log: opt.Logger.With("source", opt.Name)}
}

// Drained tells whether a complete file was read to its end and every line
// acknowledged.
func (f *File) Drained() bool { return f.drained.Load() }

// Subscribe starts reading. topic is only a name for the messages' positions.
// The channel is closed when ctx ends or Close is called.
func (f *File) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, errors.New("file source: closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	f.stop = append(f.stop, cancel)
	out := make(chan *message.Message)
	f.wg.Go(func() {
		defer close(out)
		defer cancel()
		f.follow(ctx, topic, out)
	})
	return out, nil
}

// Close ends all subscriptions and returns when their last position is stored.
func (f *File) Close() error {
	f.mu.Lock()
	f.closed = true
	for _, stop := range f.stop {
		stop()
	}
	f.mu.Unlock()
	f.wg.Wait()
	return nil
}

// follow reads the file, again from the start whenever it was replaced.
func (f *File) follow(ctx context.Context, topic string, out chan<- *message.Message) {
	said := false
	for {
		err := f.read(ctx, topic, out)
		if ctx.Err() != nil || f.drained.Load() {
			if f.drained.Load() {
				<-ctx.Done() // the router takes a closed channel for a failure
			}
			return
		}
		if err != nil && !said {
			f.log.Warn("the file cannot be read now; trying again", "path", f.opt.Path, "error", err)
		}
		said = err != nil
		if !pause.For(ctx, f.opt.Poll) {
			return
		}
	}
}

// errReplaced ends read: the file is another one, or shorter, than before.
var errReplaced = errors.New("the file was replaced")

// read hands out the lines of the file as it is now, and what is added, until
// it is replaced, drained, or ctx ends.
func (f *File) read(ctx context.Context, topic string, out chan<- *message.Message) error {
	file, err := os.Open(f.opt.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	identity, err := f.identify(file)
	if err != nil || identity == "" {
		return err // an empty file has no identity yet
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	identity, offset, err := f.resume(ctx, identity, info.Size())
	if err != nil {
		return err
	}
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	w := newWindow(ctx, f, identity, topic, out)
	defer w.close()
	reader := bufio.NewReaderSize(file, 1<<18)
	for {
		line, size, terminated, err := f.line(reader)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		atEnd := errors.Is(err, io.EOF)
		if size > 0 && (terminated || f.opt.Complete) {
			if !blank(line) {
				if !w.send(line, offset, offset+size) {
					return nil
				}
			}
			offset += size
		}
		if !atEnd {
			continue
		}
		if f.opt.Complete {
			if w.wait() {
				f.drained.Store(true)
			}
			return nil
		}
		if !pause.For(ctx, f.opt.Poll) {
			return nil
		}
		if err := f.same(file, offset); err != nil {
			w.wait()
			return nil
		}
		// A line that was torn is read again from its start.
		if _, err := file.Seek(offset, io.SeekStart); err != nil {
			return err
		}
		reader.Reset(file)
	}
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

// identify gives an identity made from the file's first line; empty while
// there is no complete one.
func (f *File) identify(file *os.File) (string, error) {
	if f.opt.Complete {
		// Nothing to wait for: whatever is there is the first line.
		line, size, _, err := f.line(bufio.NewReader(file))
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if size == 0 {
			f.drained.Store(true)
			return "", nil
		}
		return identityOf(line), nil
	}
	line, _, terminated, err := f.line(bufio.NewReader(file))
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if !terminated {
		return "", nil
	}
	return identityOf(line), nil
}

func identityOf(line []byte) string {
	sum := sha256.Sum256(line)
	return "file-" + hex.EncodeToString(sum[:8])
}

// resume gives the position to go on at. A file that became shorter is written
// anew under the same first line: each time it gets an identity of its own,
// first-2, first-3, …, and the latest one counts, also when the file has grown
// beyond an earlier one's position since.
func (f *File) resume(ctx context.Context, first string, size int64) (identity string, offset int64, err error) {
	identity = first
	for n := 2; ; n++ {
		next := fmt.Sprintf("%s-%d", first, n)
		p, err := f.opt.Positions.Position(ctx, f.opt.Name, identity)
		if errors.Is(err, store.ErrNotFound) {
			return identity, 0, nil // only the first can be unknown
		}
		if err != nil {
			return "", 0, err
		}
		switch _, err := f.opt.Positions.Position(ctx, f.opt.Name, next); {
		case err == nil:
			identity = next
			continue
		case !errors.Is(err, store.ErrNotFound):
			return "", 0, err
		}
		if size >= p.Offset {
			return identity, p.Offset, nil
		}
		f.log.Warn("the file became shorter: reading it from its start", "path", f.opt.Path)
		// Stored before the first line: it may grow again before one is acknowledged.
		return next, 0, f.opt.Positions.SetPosition(ctx, store.SourcePosition{Source: f.opt.Name, Identity: next})
	}
}

// same tells whether the path still names this file and it did not shrink.
func (f *File) same(file *os.File, offset int64) error {
	here, err := file.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(f.opt.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // moved away; what it still gets is read until a new one is there
	}
	if err != nil {
		return err
	}
	if !os.SameFile(here, there) || there.Size() < offset {
		return errReplaced
	}
	return nil
}

// line reads one line without its end. size counts all its bytes. Of a line
// above the limit only the first MaxLine+1 bytes are kept.
func (f *File) line(r *bufio.Reader) (line []byte, size int64, terminated bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		if n := len(part); n > 0 && part[n-1] == '\n' {
			part, terminated = part[:n-1], true
		}
		if room := f.opt.MaxLine + 1 - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return line, size, terminated, err
	}
}

// window is the lines in flight of one reading of a file.
type window struct {
	ctx      context.Context
	f        *File
	identity string
	topic    string
	out      chan<- *message.Message
	claim    uint64
	seq      uint64
	inFlight chan flight
	room     *semaphore.Weighted // bytes
	done     chan struct{}
	stored   int64
	acked    atomic.Uint64
}

type flight struct {
	msg  *message.Message
	next int64 // offset behind the line
	room int64 // bytes of the window that it takes
}

func newWindow(ctx context.Context, f *File, identity, topic string, out chan<- *message.Message) *window {
	w := &window{
		ctx: ctx, f: f, identity: identity, topic: topic, out: out, claim: f.claims.Add(1),
		inFlight: make(chan flight, f.opt.Window), room: semaphore.NewWeighted(f.opt.WindowBytes), done: make(chan struct{}),
	}
	go w.track()
	return w
}

func (w *window) message(line []byte, p transport.Position) *message.Message {
	m := message.NewMessage(watermill.NewUUID(), line)
	m.SetContext(transport.WithPosition(w.ctx, p))
	return m
}

// send hands out one line; false when ctx ended.
func (w *window) send(line []byte, offset, next int64) bool {
	room := min(int64(len(line)), w.f.opt.WindowBytes)
	if w.room.Acquire(w.ctx, room) != nil {
		return false
	}
	m := w.message(line, transport.Position{
		Topic: w.topic, TopicID: w.identity, Offset: offset, Time: time.Now().UTC(), Claim: w.claim, Seq: w.seq,
	})
	w.seq++
	select {
	case w.inFlight <- flight{m, next, room}:
	case <-w.ctx.Done():
		return false
	}
	select {
	case w.out <- m:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// savePeriod is how often the position is stored while lines flow.
const savePeriod = 250 * time.Millisecond

// lastSaves is how often the last position is tried: nothing comes after it.
const lastSaves = 3

// track follows the lines in order: the position moves behind a line when it
// and all before it are acknowledged. A line that was refused is handed out again.
func (w *window) track() {
	defer close(w.done)
	var position int64
	last := time.Now()
	// The last position is stored also when ctx has ended: what was taken in
	// need not be read again.
	defer func() {
		for range lastSaves {
			if w.save(context.WithoutCancel(w.ctx), position) {
				return
			}
		}
		w.f.log.Warn("the file's last position was not stored: some lines are read again, and recognised", "path", w.f.opt.Path)
	}()
	for fl := range w.inFlight {
		for acked := false; !acked; {
			select {
			case <-fl.msg.Acked():
				acked = true
			case <-fl.msg.Nacked():
				if !pause.For(w.ctx, 100*time.Millisecond) {
					return
				}
				p, _ := transport.PositionOf(fl.msg.Context())
				fl.msg = w.message(fl.msg.Payload, p)
				select {
				case w.out <- fl.msg:
				case <-w.ctx.Done():
					return
				}
			case <-w.ctx.Done():
				// A line whose effect is durable may be acknowledged a moment later.
				select {
				case <-fl.msg.Acked():
				case <-time.After(50 * time.Millisecond):
				}
				select {
				case <-fl.msg.Acked(): // also when both came
					acked = true
				default:
					return
				}
			}
		}
		position = fl.next
		w.room.Release(fl.room)
		w.acked.Add(1)
		if time.Since(last) > savePeriod {
			w.save(w.ctx, position)
			last = time.Now()
		}
	}
}

// save stores the position and tells whether it is stored.
func (w *window) save(ctx context.Context, position int64) bool {
	if position <= w.stored {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	crash.At(crash.PositionSaving, w.f.opt.Name)
	err := w.f.opt.Positions.SetPosition(ctx, store.SourcePosition{Source: w.f.opt.Name, Identity: w.identity, Offset: position})
	if err != nil {
		// Not fatal: after a restart some lines are read again and fenced.
		w.f.log.Debug("the file's position was not stored", "error", err)
		return false
	}
	crash.At(crash.PositionSaved, w.f.opt.Name)
	w.stored = position
	return true
}

// wait returns true when every line that was handed out is acknowledged and
// the position stored.
func (w *window) wait() bool {
	w.close()
	return w.acked.Load() == w.seq
}

func (w *window) close() {
	select {
	case <-w.done:
		return
	default:
	}
	close(w.inFlight)
	<-w.done
}
