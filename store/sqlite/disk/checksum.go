package disk

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// Reserved is how many bytes at the end of each page are for its checksum, which has the
// first eight of them. With eight reserved bytes the driver would put its own there.
const Reserved = 12

// Where the first page says how large pages are, and how much of each is free.
const sizeAt, reservedAt = 16, 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is in the reserved bytes of a page: a CRC-32C of its content and
// number, and the inverse of it, so that zeroes are none.
func checksum(page []byte, number int64) uint64 {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(number))
	c := crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, page[:len(page)-Reserved])
	return uint64(c)<<32 | uint64(^c)
}

// sealedPages returns the size of a database's pages in bytes, 0 if they have no room for a
// checksum.
func sealedPages(database io.ReaderAt) int {
	var head [reservedAt + 1]byte
	if _, err := database.ReadAt(head[:], 0); err != nil || head[reservedAt] != Reserved {
		return 0
	}
	if size := int(binary.BigEndian.Uint16(head[sizeAt:])); size != 1 {
		return size
	}
	return 64 << 10 // which two bytes cannot say
}

func (f *file) number(offset int64) int64 { return offset/int64(f.page) + 1 }

// seal puts the checksum into a page that is about to be written.
func (f *file) seal(page []byte, offset int64) {
	binary.BigEndian.PutUint64(page[f.page-Reserved:], checksum(page, f.number(offset)))
	if offset == 0 {
		f.d.unsealed.Store(false)
	}
}

// verify returns how a page differs from the written one. It removes the checksum, so that
// SQLite does not write that of older content into its log: a page that another program
// moves from there into the database has zeroes in its place. Such a page is accepted, but
// for a page of zeroes alone in a file that another program did not write as a whole.
func (f *file) verify(page []byte, offset int64) error {
	number, sealed := f.number(offset), page[f.page-Reserved:]
	sum := binary.BigEndian.Uint64(sealed)
	if offset == 0 {
		f.d.unsealed.Store(sum == 0)
	}
	if sum != checksum(page, number) && (sum != 0 || !f.d.Unsealed() && !slices.ContainsFunc(page, func(b byte) bool { return b != 0 })) {
		return fmt.Errorf("page %d, at byte %d, does not have the checksum that it was written with", number, offset)
	}
	clear(sealed)
	return nil
}
