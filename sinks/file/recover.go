package file

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/gjson"
)

// recordStart is how every record begins, see change.AppendRecord.
const recordStart = `{"service":`

// readBytes is how much recover reads at once.
const readBytes = 64 << 10

var (
	// errForeign is in the chain when the file holds bytes that this sink did not write.
	errForeign = errors.New("not written by this sink")
	// errDamaged is in the chain when the file holds bytes that neither this sink nor an
	// interrupted write can have left.
	errDamaged = errors.New("changed by a failing disk or file system")
)

// recover repairs the end of the file, fills the window of keys and returns the
// length of the file. It reads at most the last s.tail bytes.
func (s *Sink) recover(ctx context.Context) (int64, error) {
	info, err := s.f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size()
	if err := s.checkStart(size); err != nil {
		return 0, err
	}
	at := max(0, size-s.tail)
	// Thousands of sinks open new files at the same time.
	r := bufio.NewReaderSize(io.NewSectionReader(s.f, at, size-at), int(min(size-at, readBytes)))
	if at > 0 { // in the middle of a line
		skipped, err := discardLine(r)
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("no line ends in the last %d bytes: %w", s.tail, errForeign)
		}
		if err != nil {
			return 0, err
		}
		at += skipped
	}
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		line, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return s.repairEnd(at, line)
		case err != nil:
			return 0, err
		}
		k, ok := recordKey(line)
		if !ok {
			if nul := bytes.IndexByte(line, 0); nul < 0 || !startsRecord(line[:nul]) {
				return 0, fmt.Errorf("the line at byte %d is no record: %w", at, errForeign)
			}
			if err := nothingWhole(ctx, r, at, at+int64(len(line))); err != nil {
				return 0, err
			}
			return s.repairEnd(at, line)
		}
		s.keys.add(k)
		at += int64(len(line))
	}
}

// discardLine reads to the end of a line, which may be of any length.
func discardLine(r *bufio.Reader) (n int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		n += int64(len(part))
		if !errors.Is(err, bufio.ErrBufferFull) {
			return n, err
		}
	}
}

// checkStart refuses a file that begins with something else: a file that the
// configuration names by mistake must not be cut off or added to.
func (s *Sink) checkStart(size int64) error {
	start := make([]byte, min(size, int64(len(recordStart))))
	if _, err := s.f.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !startsRecord(start) {
		return fmt.Errorf("the file begins with something else than a record: %w", errForeign)
	}
	return nil
}

// nothingWhole reads to the end of the file, from byte next, and returns an error
// for a whole record there, which may have been confirmed: the zeroed
// line at byte at then does not belong to the last Write.
func nothingWhole(ctx context.Context, r *bufio.Reader, at, next int64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, err := r.ReadBytes('\n')
		ends := errors.Is(err, io.EOF)
		if err != nil && !ends {
			return err
		}
		if _, ok := recordKey(line); ok || holdsRecord(line) {
			return fmt.Errorf("the line at byte %d: %w", at, errDamaged)
		}
		if bytes.IndexByte(line, 0) < 0 && (!ends || !startsRecord(line)) {
			return fmt.Errorf("the line at byte %d is no record: %w", next, errForeign)
		}
		if ends {
			return nil
		}
		next += int64(len(line))
	}
}

// holdsRecord reports whether the line has a whole record behind a NUL.
func holdsRecord(line []byte) bool {
	for _, rest, more := bytes.Cut(line, []byte{0}); more; {
		var part []byte
		part, rest, more = bytes.Cut(rest, []byte{0})
		if _, ok := recordKey(part); ok {
			return true
		}
	}
	return false
}

// repairEnd repairs the rest of the file from byte at, which is no whole line, or begins
// with one that holds a NUL.
func (s *Sink) repairEnd(at int64, rest []byte) (int64, error) {
	if len(rest) == 0 {
		return at, nil
	}
	written, _, zeroed := bytes.Cut(rest, []byte{0})
	k, whole := recordKey(written)
	switch {
	case !whole && !startsRecord(written):
		return 0, fmt.Errorf("what stands at byte %d is no record: %w", at, errForeign)
	case zeroed && (holdsRecord(rest) || turned(rest)), !whole && holdsValue(written):
		return 0, fmt.Errorf("the line at byte %d: %w", at, errDamaged)
	case !whole:
		return at, s.f.Truncate(at)
	}
	end := at + int64(len(written))
	if zeroed {
		if err := s.f.Truncate(end); err != nil {
			return 0, err
		}
	}
	if _, err := s.f.WriteAt([]byte{'\n'}, end); err != nil {
		return 0, err
	}
	s.keys.add(k)
	return end + 1, nil
}

// turned reports whether the line is a whole record with one flipped bit, which made a NUL: an
// interrupted write never leaves a single NUL.
func turned(line []byte) bool {
	at := bytes.IndexByte(line, 0)
	if at < 0 || bytes.IndexByte(line[at+1:], 0) >= 0 {
		return false
	}
	line = bytes.Clone(line)
	for bit := range 8 {
		line[at] = 1 << bit
		if _, ok := recordKey(line); ok {
			return true
		}
	}
	return false
}

// holdsValue reports whether b begins with a whole JSON value: the record was written
// to its end, and the next byte was its newline.
func holdsValue(b []byte) bool {
	var value json.RawMessage
	return json.NewDecoder(bytes.NewReader(b)).Decode(&value) == nil
}

// startsRecord reports whether b may be a record or the beginning of one.
func startsRecord(b []byte) bool {
	n := min(len(b), len(recordStart))
	return string(b[:n]) == recordStart[:n]
}

// recordKey returns the key of a whole record.
func recordKey(line []byte) (key, bool) {
	if !startsRecord(line) || !gjson.ValidBytes(line) {
		return key{}, false
	}
	k := gjson.GetBytes(line, "key")
	return keyOf(k.Str), k.Type == gjson.String
}
