package file

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
)

// place is stored beside a position and identifies the file.
type place struct {
	Mark []byte // of the line before the position
	// Lines is the state of a hash of all lines before it, see addLine.
	Lines []byte
	Inode uint64 // of the file, 0 where it is not known
	Time  int64  // its time of modification, Unix nanoseconds
}

// parsePlace returns an empty place for a state that it cannot read.
func parsePlace(state []byte) (p place) {
	_ = json.Unmarshal(state, &p)
	return p
}

func (p place) state() []byte {
	text, _ := json.Marshal(p) // bytes and numbers have a form
	return text
}

// markBytes is how many bytes of a line its mark covers. Every limit of a line's length is
// larger.
const markBytes = 1 << 10

// markOf identifies a line: by its size with its end, and a digest of its beginning.
func markOf(line []byte, size int64) []byte {
	sum := sha256.Sum256(line[:min(len(line), markBytes)])
	return append(binary.AppendUvarint(nil, uint64(size)), sum[:8]...)
}

// addLine adds a line to the hash of all lines: its size and its first markBytes.
func addLine(h hash.Hash, line []byte, size int64) {
	var n [binary.MaxVarintLen64]byte
	_, _ = h.Write(n[:binary.PutUvarint(n[:], uint64(size))])
	_, _ = h.Write(line[:min(len(line), markBytes)])
}

// has reports whether the file reaches a position, with the marked line before it. A position
// without a mark is not compared.
func (h *handle) has(offset int64, mark []byte) (bool, error) {
	size, n := binary.Uvarint(mark)
	if n <= 0 || size == 0 || size > uint64(offset) {
		return h.seen.Size() >= offset, nil
	}
	line := make([]byte, min(size, markBytes))
	switch _, err := h.ReadAt(line, offset-int64(size)); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return h.seen.Size() >= offset && bytes.Equal(mark, markOf(bytes.TrimSuffix(line, []byte("\n")), int64(size))), nil
}

// place returns the place behind the lines that were read.
func (h *handle) place(mark []byte) place {
	lines, _ := h.lines.(encoding.BinaryMarshaler).MarshalBinary() // SHA-256 has a form
	return place{Mark: mark, Lines: lines, Inode: inodeOf(h.seen), Time: h.seen.ModTime().UnixNano()}
}

// suspicious reports whether a file with a place's mark may still be another one: it is not the
// file read before, or it was written to without growing.
func (h *handle) suspicious(offset int64, p place) bool {
	return p.Inode != inodeOf(h.seen) || h.seen.Size() == offset && p.Time != h.seen.ModTime().UnixNano()
}

// hashLines hashes the lines of a file up to a position. It reads all of them.
func (f *Source) hashLines(file *os.File, offset int64) (hash.Hash, error) {
	h := sha256.New()
	reader := newLineReader(io.NewSectionReader(file, 0, offset))
	for {
		line, size, _, err := f.line(reader)
		if size > 0 {
			addLine(h, line, size)
		}
		switch {
		case errors.Is(err, io.EOF):
			return h, nil
		case err != nil:
			return nil, err
		}
	}
}

// restoreLines returns the hash of the lines before a place, and false without one.
func restoreLines(p place) (hash.Hash, bool) {
	h := sha256.New()
	err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(p.Lines)
	return h, err == nil
}

// isSame compares a suspicious file with the file read before, line by line.
func (f *Source) isSame(file *handle, offset int64, read hash.Hash) (bool, error) {
	now, err := f.hashLines(file.File, offset)
	if err != nil {
		return false, err
	}
	return bytes.Equal(now.Sum(nil), read.Sum(nil)), nil
}
