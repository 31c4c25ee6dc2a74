package file

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/bom"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"github.com/seed-86dfc502/weir/store"
)

// Options of a Source.
type Options struct {
	Name      string // of the source
	Path      string
	Positions store.SourcePositions
	// Complete says that the file no longer grows: the source is
	// drained at its end, and a last line without line feed counts. Otherwise
	// the file is followed, and such a line is waited for.
	Complete bool
	// MaxLine is the longest line in bytes. Of a longer one the first MaxLine+1 bytes are handed
	// out, which ingest refuses by its limit. Defaults to 8 MiB.
	MaxLine int
	// Poll is how often a followed file is looked at. Defaults to 250ms.
	Poll time.Duration
	// Linger is how long a file that was replaced must have been quiet before it is
	// left: its writer uses it until it opens the new one. Defaults to 1s.
	Linger time.Duration
	// OnLinesLost, if given, is called for lines that were added to a file after it was
	// left, with their place in bytes. It must not block.
	OnLinesLost func(topic string, partition int32, from, to int64)
	Logger      *slog.Logger
}

// Bounds of a frame of a file. A larger line passes alone.
const (
	frameLines = 2000
	frameBytes = 4 << 20
)

// Source reads a file with one JSON event per line and resumes where it was. The file is
// recognised by its first line and by the line read last: a replaced or rewritten file is read
// from its start under a new identity.
//
// A frame holds the lines present when the frame before was acknowledged. Two frames
// are in memory: one in work, and the next one, which is read meanwhile.
type Source struct {
	opt     Options
	log     *slog.Logger
	drained atomic.Bool
	failing atomic.Pointer[error]
	backlog backlog
	left    *leftFile // owned by the goroutine that reads

	subscriptions handout.Subscriptions
}

// New makes a source. Nothing is read before Subscribe.
func New(opt Options) *Source {
	opt.MaxLine = defaults.Positive(opt.MaxLine, 8<<20)
	opt.Poll = defaults.Positive(opt.Poll, 250*time.Millisecond)
	opt.Linger = defaults.Positive(opt.Linger, time.Second)
	return &Source{opt: opt, log: opt.Logger.With("source", opt.Name)}
}

var (
	_ sources.Failing = (*Source)(nil)
	_ sources.Log     = (*Source)(nil)
)

// Topic implements sources.Source.
func (f *Source) Topic() string { return "file:" + f.opt.Name }

// Drained implements sources.Source: a complete file was read to its end and every
// line acknowledged.
func (f *Source) Drained(context.Context) (bool, error) { return f.drained.Load(), nil }

// WaitsFor implements sources.Failing.
func (f *Source) WaitsFor() string { return "its file " + f.opt.Path }

// Failing implements sources.Failing.
func (f *Source) Failing() error {
	if err := f.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// Subscribe starts reading. topic is only a name for the frames.
// The channel is closed when ctx ends or Close is called.
func (f *Source) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	return f.subscriptions.Open(ctx, func(ctx context.Context, out chan<- *message.Message) { f.follow(ctx, topic, out) })
}

// Close ends all subscriptions and returns when their last position is stored.
func (f *Source) Close() error {
	f.subscriptions.Close()
	return nil
}

// follow reads the file, and from the start again whenever it was replaced.
func (f *Source) follow(ctx context.Context, topic string, out chan<- *message.Message) {
	defer f.closeLeft()
	warned := false
	for {
		err := f.read(ctx, topic, out)
		f.failing.Store(&err)
		if ctx.Err() != nil || f.drained.Load() {
			if f.drained.Load() {
				<-ctx.Done() // the router takes a closed channel for a failure
			}
			return
		}
		if err != nil && !warned {
			f.log.Warn("the file cannot be read now; trying again", "path", f.opt.Path, "error", err)
		}
		warned = err != nil
		if !wait.Sleep(ctx, f.opt.Poll) {
			return
		}
	}
}

// errUTF16 is the error of a file of which no line is JSON.
var errUTF16 = errors.New("the file is UTF-16, and JSON is UTF-8: convert it (iconv -f UTF-16 -t UTF-8)")

// Why reading a file ends.
var (
	errReplaced  = errors.New("the path names another file")
	errRewritten = errors.New("the file was written anew")
)

// handle is the file that is read.
type handle struct {
	*os.File
	first    string      // the identity of its first line, empty before that is complete
	seen     os.FileInfo // when that was read
	previous string      // its identity before it was rewritten, or empty
	mark     []byte      // of the line before the position that is read from
	lines    hash.Hash   // of all lines before it
	verified int64       // Unix nanoseconds; the lines were compared at this time of modification
	offset   int64       // its end, when it was left
	left     bool        // it is watched for late lines, and not closed
}

// chunk is what becomes one frame.
type chunk struct {
	records []transport.Received
	bytes   int
	next    int64  // offset behind its last line
	last    []byte // its last line, also a blank one
	size    int64  // of that, with its end
	place   place  // behind it
}

// seal completes a chunk that is handed on.
func (c *chunk) seal(file *handle) { c.place = file.place(markOf(c.last, c.size)) }

// fits reports whether a line of that size may join the chunk.
func (c *chunk) fits(size int) bool {
	return len(c.records) == 0 || len(c.records) < frameLines && c.bytes+size <= frameBytes
}

// read hands out the lines of the file, and those that are added, until it is
// replaced, drained, or ctx ends.
func (f *Source) read(ctx context.Context, topic string, out chan<- *message.Message) error {
	file, err := os.Open(f.opt.Path)
	if err != nil {
		return err
	}
	h := &handle{File: file}
	defer func() {
		if !h.left {
			_ = file.Close()
		}
	}()
	for {
		// A rewritten file stays open: it may have been moved away from its path.
		if err := f.pass(ctx, topic, h, out); !errors.Is(err, errRewritten) {
			return err
		}
	}
}

// pass reads an open file. It fails with errRewritten when it is to be called again.
func (f *Source) pass(ctx context.Context, topic string, file *handle, out chan<- *message.Message) error {
	identity, offset, err := f.begin(ctx, file)
	if err != nil || identity == "" {
		return err
	}
	if err := f.backlog.begin(file.File, offset); err != nil {
		return err
	}
	chunks, dispatched := make(chan chunk), make(chan bool, 1)
	go func() { dispatched <- f.dispatch(ctx, topic, identity, chunks, out) }()
	// finish returns when the position is stored, and reports whether everything
	// was acknowledged.
	finish := sync.OnceValue(func() bool {
		close(chunks)
		return <-dispatched
	})
	defer finish()
	c, err := f.readLines(ctx, file, offset, chunks)
	rewritten := errors.Is(err, errRewritten)
	if err != nil && !rewritten || ctx.Err() != nil {
		return err
	}
	if len(c.records) > 0 {
		c.seal(file)
		if !send(ctx, chunks, c) {
			return nil
		}
	}
	if !finish() {
		return nil
	}
	if rewritten {
		file.previous = identity
		return err
	}
	f.drained.Store(f.opt.Complete)
	if !f.opt.Complete {
		file.left = true
		f.leave(file.File, file.offset)
	}
	return nil
}

// begin returns the identity of an open file and where to resume in it. The identity is empty for
// a file that ended without a first line. It waits for the first line, and for the store, with
// the file open: it may be moved away from its path meanwhile.
func (f *Source) begin(ctx context.Context, file *handle) (identity string, offset int64, err error) {
	warned := false
	for last := f.opt.Complete; ; {
		if err = f.identify(file); err != nil {
			return "", 0, err // for instance a directory: read the file that replaces it
		}
		f.failing.Store(nil)
		if file.first != "" {
			identity, offset, err = f.resume(ctx, file)
			if err == nil {
				return identity, offset, nil
			}
		}
		if err == nil && last {
			return "", 0, nil
		}
		if err != nil && !warned {
			f.log.Warn("the file cannot be read now; trying again", "path", f.opt.Path, "error", err)
		}
		warned = err != nil
		if !wait.Sleep(ctx, f.opt.Poll) {
			return "", 0, nil
		}
		// One without a first line, and another in its place: it gets one look more.
		last = err == nil && f.replaced(file) != nil
	}
}

func send(ctx context.Context, chunks chan<- chunk, c chunk) bool {
	select {
	case chunks <- c:
		return true
	case <-ctx.Done():
		return false
	}
}

// readLines cuts the file into chunks from offset on, and returns the last one
// when the file is at its end and nothing more comes, or with errRewritten.
func (f *Source) readLines(ctx context.Context, file *handle, offset int64, chunks chan<- chunk) (c chunk, err error) {
	reader := newLineReader(nil)
	var quiet time.Time // when a file that was replaced was last known to grow
	for last := f.opt.Complete; ; {
		before := offset
		// Also a line that was torn is read again from its start.
		if _, err := file.Seek(offset, io.SeekStart); err != nil {
			return c, err
		}
		reader.Reset(file)
		torn := false
		for atEnd := false; !atEnd; {
			line, size, terminated, err := f.line(reader)
			if err != nil && !errors.Is(err, io.EOF) {
				return c, err
			}
			atEnd = err != nil
			torn = size > 0 && !terminated && !f.opt.Complete
			if torn || size == 0 {
				continue
			}
			if !blank(bom.Trim(line)) {
				if !c.fits(len(line)) {
					c.seal(file)
					if !send(ctx, chunks, c) {
						return c, nil
					}
					c = chunk{}
				}
				c.records = append(c.records, transport.Received{Value: line, Offset: offset, Time: time.Now().UTC()})
				c.bytes += len(line)
			}
			addLine(file.lines, line, size)
			offset += size
			c.next, c.last, c.size = offset, line, size
		}
		if offset > before {
			file.mark = markOf(c.last, c.size)
		}
		if last {
			file.offset = offset
			if torn {
				f.log.Warn("the file was replaced while its last line had no end: the line is left out", "path", f.opt.Path)
			}
			return c, nil
		}
		// The next frame grows until the frame before is acknowledged.
		ready := chunks
		if len(c.records) == 0 {
			ready = nil
		} else {
			c.seal(file)
		}
		f.checkLeft()
		poll := time.NewTimer(f.opt.Poll)
		select {
		case ready <- c:
			c = chunk{}
		case <-poll.C:
		case <-ctx.Done():
		}
		poll.Stop()
		if ctx.Err() != nil {
			return c, nil //nolint:nilerr // a shutdown is no failure of the file
		}
		switch err := f.same(file, offset); {
		case errors.Is(err, errReplaced):
			// Lines written before the move are still to be read, and those that its
			// writer adds until it opens the new file.
			if quiet.IsZero() || offset > before {
				quiet = time.Now()
			}
			last = time.Since(quiet) >= f.opt.Linger
		case errors.Is(err, errRewritten):
			return c, err
		case err != nil:
			return c, nil //nolint:nilerr // it is opened again
		}
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

// identify makes an identity from the file's first line, at any reading position. It is empty
// before the line is complete.
func (f *Source) identify(file *handle) (err error) {
	file.first = ""
	// Before the line is read: later writes show at the next look.
	if file.seen, err = file.Stat(); err != nil {
		return err
	}
	line, size, terminated, err := f.line(bufio.NewReader(io.NewSectionReader(file, 0, math.MaxInt64)))
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case bom.UTF16(line):
		return errUTF16
	case f.opt.Complete && size == 0:
		f.drained.Store(true) // nothing will come
	case f.opt.Complete || terminated:
		file.first = identityOf(line)
	}
	return nil
}

func identityOf(line []byte) string {
	sum := sha256.Sum256(line)
	return "file-" + hex.EncodeToString(sum[:8])
}

// resume returns the position to resume at. A file that was rewritten under the
// same first line, which is shorter or has another line before the position, gets an
// identity of its own each time, first-2, first-3, …, and the latest one counts, also
// when the file has grown beyond an earlier one's position since.
func (f *Source) resume(ctx context.Context, file *handle) (identity string, offset int64, err error) {
	if file.previous != "" {
		// It may not have been stored, and only a stored position has a next.
		if err := f.opt.Positions.SetPosition(ctx, store.SourcePosition{Source: f.opt.Name, Identity: file.previous}); err != nil {
			return "", 0, err
		}
	}
	identity, file.mark, file.lines = file.first, nil, sha256.New()
	for n := 2; ; n++ {
		next := fmt.Sprintf("%s-%d", file.first, n)
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
		if grown, err := f.grown(file, p); err != nil {
			return "", 0, err
		} else if file.previous == "" && grown {
			return identity, p.Offset, nil
		}
		f.log.Warn("the file was written anew: reading it from its start", "path", f.opt.Path)
		// Stored before the first line: it may grow again before one is acknowledged.
		return next, 0, f.opt.Positions.SetPosition(ctx, store.SourcePosition{Source: f.opt.Name, Identity: next})
	}
}

// grown reports whether a file is the file of a position, unchanged or longer, and prepares to
// read on there.
func (f *Source) grown(file *handle, p store.SourcePosition) (bool, error) {
	at := parsePlace(p.State)
	if has, err := file.has(p.Offset, at.Mark); !has || err != nil {
		return false, err
	}
	lines, ok := restoreLines(at)
	if !ok {
		var err error // stored before a line was read
		if lines, err = f.hashLines(file.File, p.Offset); err != nil {
			return false, err
		}
	} else if file.suspicious(p.Offset, at) {
		if same, err := f.isSame(file, p.Offset, lines); !same || err != nil {
			return false, err
		}
	}
	file.mark, file.lines = at.Mark, lines
	return true, nil
}

// same fails when the file was rewritten, or its path names another one.
func (f *Source) same(file *handle, offset int64) error {
	here, err := file.Stat()
	switch {
	case err != nil:
		return err
	case here.Size() < offset:
		return errRewritten
	case here.Size() == file.seen.Size() && here.ModTime().Equal(file.seen.ModTime()):
		return f.replaced(file)
	}
	first := file.first
	if err := f.identify(file); err != nil {
		return err
	}
	grown, err := file.has(offset, file.mark)
	switch {
	case err != nil:
		return err
	case file.first != first || !grown:
		return errRewritten
	}
	// Written to and not longer: it may be another one of the same size.
	if t := file.seen.ModTime().UnixNano(); offset > 0 && file.seen.Size() == offset && t != file.verified {
		if same, err := f.isSame(file, offset, file.lines); err != nil || !same {
			return cmp.Or(err, errRewritten)
		}
		file.verified = t
	}
	return f.replaced(file)
}

// replaced fails when the path names another file.
func (f *Source) replaced(file *handle) error {
	there, err := os.Stat(f.opt.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // moved away; it is read further until a new file appears
	case err != nil:
		return err
	case !os.SameFile(file.seen, there):
		return errReplaced
	}
	return nil
}

func newLineReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, 1<<18) }

// line reads one line without its end. size counts all its bytes. Of a line
// above the limit only the first MaxLine+1 bytes are kept.
func (f *Source) line(r *bufio.Reader) (line []byte, size int64, terminated bool, err error) {
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

const (
	// savePeriod is how often the position is stored while lines flow.
	savePeriod = 250 * time.Millisecond
	// lastSaves is how often the last position is tried: nothing comes after it.
	lastSaves = 3
	// lateGrace is how long a shutdown waits for the frame in work.
	lateGrace = 50 * time.Millisecond
)

// dispatch hands out the chunks one after the other and moves the position
// behind each when it is acknowledged. It reports whether all of them were.
func (f *Source) dispatch(ctx context.Context, topic, identity string, chunks <-chan chunk, out chan<- *message.Message) bool {
	assignment := transport.NextAssignment()
	var position, stored int64
	var at place
	save := func(ctx context.Context) {
		if position > stored && f.save(ctx, identity, position, at) {
			stored = position
		}
	}
	// The last position is stored also when ctx has ended: ingested lines need not
	// be read again.
	defer func() {
		for range lastSaves {
			save(context.WithoutCancel(ctx))
		}
		if stored < position {
			f.log.Warn("the file's last position was not stored: some lines are read again, and recognised", "path", f.opt.Path)
		}
	}()
	last := time.Now()
	for c := range chunks {
		if !handout.Frame(ctx, out, transport.NewFrame(topic, identity, 0, assignment, c.records), lateGrace) {
			return false
		}
		position, at = c.next, c.place
		f.backlog.acknowledged(c.next, len(c.records))
		if time.Since(last) > savePeriod {
			save(ctx)
			last = time.Now()
		}
	}
	return true
}

// save stores the position with its place, and reports whether it is stored.
func (f *Source) save(ctx context.Context, identity string, position int64, at place) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	crash.At(crash.PositionSaving, f.opt.Name)
	err := f.opt.Positions.SetPosition(ctx, store.SourcePosition{Source: f.opt.Name, Identity: identity, Offset: position, State: at.state()})
	if err != nil {
		// Not fatal: after a restart some lines are read again and fenced.
		f.log.Debug("the file's position was not stored", "error", err)
		return false
	}
	crash.At(crash.PositionSaved, f.opt.Name)
	return true
}
