package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tidwall/gjson"
)

// recordStart is how every record begins, see change.AppendRecord.
const recordStart = `{"service":`

// errForeign is in the chain when the file holds what this sink did not write.
var errForeign = errors.New("not written by this sink")

// recover repairs the end of the file, fills the window of keys and gives the
// length of the file. It reads at most the last TailBytes.
func (s *Sink) recover(ctx context.Context) (int64, error) {
	info, err := s.f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size()
	if err := s.checkStart(size); err != nil {
		return 0, err
	}
	at := max(0, size-s.opts.TailBytes)
	r := bufio.NewReaderSize(io.NewSectionReader(s.f, at, size-at), 1<<20)
	if at > 0 { // in the middle of a line
		skipped, err := discardLine(r)
		if errors.Is(err, io.EOF) {
			return 0, fmt.Errorf("no line ends in the last %d bytes: %w", s.opts.TailBytes, errForeign)
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
			if nul := bytes.IndexByte(line, 0); nul >= 0 && startsRecord(line[:nul]) {
				return at, s.f.Truncate(at)
			}
			return 0, fmt.Errorf("the line at byte %d is no record: %w", at, errForeign)
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

// checkStart refuses a file that begins with something else: what the
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

// repairEnd deals with the rest behind the last newline, at byte at.
func (s *Sink) repairEnd(at int64, rest []byte) (int64, error) {
	if len(rest) == 0 {
		return at, nil
	}
	if k, ok := recordKey(rest); ok {
		end := at + int64(len(rest))
		if _, err := s.f.WriteAt([]byte{'\n'}, end); err != nil {
			return 0, err
		}
		s.keys.add(k)
		return end + 1, nil
	}
	written, _, _ := bytes.Cut(rest, []byte{0})
	if !startsRecord(written) {
		return 0, fmt.Errorf("what stands at byte %d is no record: %w", at, errForeign)
	}
	return at, s.f.Truncate(at)
}

// startsRecord tells whether b may be a record or the beginning of one.
func startsRecord(b []byte) bool {
	n := min(len(b), len(recordStart))
	return string(b[:n]) == recordStart[:n]
}

// recordKey gives the key of a whole record.
func recordKey(line []byte) (key, bool) {
	if !startsRecord(line) || !gjson.ValidBytes(line) {
		return key{}, false
	}
	k := gjson.GetBytes(line, "key")
	return keyOf(k.Str), k.Type == gjson.String
}
