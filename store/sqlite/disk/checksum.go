package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// Reserved is how many bytes at the end of each page are for its checksum, which has the
// first eight of them. The driver puts its own checksum in place of eight bytes; that has
// neither the page's number nor a difference from zeros.
const Reserved = 12

const (
	minPage = 512
	maxPage = 64 << 10
	// Where the first page says how large pages are, and how much of each is free.
	sizeAt, reservedAt = 16, 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is in the reserved bytes of a page: a CRC-32C of its content and
// number, and the inverse of it, so that zeroes are none.
func checksum(page []byte, number int64) uint64 {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(number))
	c := crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, page[:len(page)-Reserved])
	return uint64(c)<<32 | uint64(^c)
}

func sealOf(page []byte) uint64 { return binary.BigEndian.Uint64(page[len(page)-Reserved:]) }

// seal is the statement of the first page of a database about all of them.
type seal struct {
	known    bool
	page     int  // size of pages
	reserved bool // there is room for checksums
	sealed   bool // all have one
}

// isPage reports whether n bytes at an offset may be a page.
func isPage(n int, offset int64) bool {
	return n >= minPage && n <= maxPage && n&(n-1) == 0 && offset%int64(n) == 0
}

// learn takes in the first page.
func (s *seal) learn(page []byte) {
	size := int(binary.BigEndian.Uint16(page[sizeAt:]))
	if size == 1 {
		size = maxPage
	}
	reserved := page[reservedAt] == Reserved
	*s = seal{known: size == len(page), page: size, reserved: reserved, sealed: reserved && sealOf(page) != 0}
}

// look reads the statement of the first page.
func (f *file) look() *seal {
	s := &f.seal
	if s.known {
		return s
	}
	head := f.bytes(reservedAt+1, 0)
	if head == nil {
		return s // an empty file
	}
	size := int(binary.BigEndian.Uint16(head[sizeAt:]))
	if size == 1 {
		size = maxPage
	}
	if isPage(size, 0) {
		if first := f.bytes(size, 0); first != nil {
			s.learn(first)
		}
	}
	return s
}

// sealPage puts the checksum into a page that is about to be written.
func (f *file) sealPage(b []byte, offset int64) {
	if !isPage(len(b), offset) {
		return
	}
	s := f.look()
	sum := checksum(b, offset/int64(len(b))+1)
	if offset == 0 {
		// The first page gets its own when all others have theirs.
		if !s.sealed && !f.d.sealing.Load() {
			sum = 0
		}
		s.reserved, s.page = b[reservedAt] == Reserved, len(b)
	}
	if s.reserved && s.page == len(b) {
		binary.BigEndian.PutUint64(b[len(b)-Reserved:], sum)
		s.known, s.sealed = true, s.sealed || offset == 0 && sum != 0
	}
}

// verify returns an ErrDamaged for a page that differs from the written one; short: the
// file ends before it.
func (f *file) verify(b []byte, offset int64, short bool) error {
	if f.wal {
		return f.verifyLog(b, offset, short)
	}
	if short || !isPage(len(b), offset) {
		return nil // SQLite itself compares the size of the file with that in its first page
	}
	s := f.look()
	if !s.known || !s.sealed || s.page != len(b) {
		return nil
	}
	number := offset/int64(len(b)) + 1
	if sealOf(b) != checksum(b, number) && !moved(b) {
		return fmt.Errorf("%w: %s, page %d, at byte %d, does not have the checksum that it was written with", ErrDamaged, f.name, number, offset)
	}
	return nil
}

// unsealPage takes the checksum from a page that was read, so that SQLite does not
// write that of older content into its log. Another program that moves pages from the
// log into the file, as the last one that closes it does after a crash, leaves zeroes
// there then.
func (f *file) unsealPage(b []byte, offset int64) {
	if s := &f.seal; !f.wal && s.known && s.reserved && s.page == len(b) && isPage(len(b), offset) {
		clear(b[len(b)-Reserved:])
	}
}

// moved reports whether a page has no checksum since another program moved it out of
// the log, where it had one. A page of zeroes alone was never written.
func moved(page []byte) bool {
	return sealOf(page) == 0 && slices.ContainsFunc(page, func(b byte) bool { return b != 0 })
}
