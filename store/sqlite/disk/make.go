package disk

import (
	"encoding/binary"

	"github.com/seed-86dfc502/weir/internal/durable"
)

// pageSize is that of files which Make begins, in bytes: SQLite's own default.
const pageSize = 4096

// ApplicationID is what files which Make begins have as their application_id.
const ApplicationID = 'W'<<24 | 'e'<<16 | 'i'<<8 | 'r'

// Make makes a database file for its user alone, durably, if there is none: an empty
// one whose pages have checksums, with a write-ahead log, that releases free pages
// (auto_vacuum=INCREMENTAL).
func Make(path string) error {
	return durable.Create(path, emptyDatabase())
}

// emptyDatabase is the one page of a database without tables.
// https://sqlite.org/fileformat2.html
func emptyDatabase() []byte {
	page := make([]byte, pageSize)
	copy(page, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(page[sizeAt:], pageSize)
	page[18], page[19] = 2, 2 // read and written with a write-ahead log
	page[reservedAt] = Reserved
	page[21], page[22], page[23] = 64, 32, 32 // fixed
	binary.BigEndian.PutUint32(page[24:], 1)  // change counter
	binary.BigEndian.PutUint32(page[28:], 1)  // pages
	binary.BigEndian.PutUint32(page[52:], 1)  // auto_vacuum,
	binary.BigEndian.PutUint32(page[64:], 1)  // and that incremental
	binary.BigEndian.PutUint32(page[56:], 1)  // UTF-8
	binary.BigEndian.PutUint32(page[44:], 4)  // schema format
	binary.BigEndian.PutUint32(page[68:], ApplicationID)
	binary.BigEndian.PutUint32(page[92:], 1)       // the change counter for which the number of pages holds
	binary.BigEndian.PutUint32(page[96:], 3008000) // the version that wrote it
	page[100] = 0x0d                               // a leaf of a table, without cells
	binary.BigEndian.PutUint16(page[105:], pageSize-Reserved)
	binary.BigEndian.PutUint64(page[pageSize-Reserved:], checksum(page, 1))
	return page
}
