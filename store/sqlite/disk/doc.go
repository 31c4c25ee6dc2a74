// Package disk is the layer between SQLite and the file system: a VFS around the
// one that SQLite has for the system. SQLite itself trusts its reads, and continues
// after an fsync that failed. This layer does neither.
//
// # Found
//
//   - A page of the database file that differs from the written one, of a file that Make
//     began: each page has a CRC-32C of its content and number in its last twelve
//     bytes, which SQLite leaves free there.
//   - A page of the write-ahead log that differs from the written one. SQLite has
//     checksums there, and looks at them only when the log is recovered; here they
//     are compared at each read.
//   - An fsync that failed. The kernel takes the pages for clean afterwards, so a
//     second fsync would acknowledge writes that the first one lost.
//
// The first of these is kept, closes Failed, and ends all writing through this Disk:
// continuing would acknowledge what may not be there.
//
// # Not found
//
// A page that is an older version of itself, with the checksum of then, and a log
// that is gone as a whole: package sqlite compares with a note beside the file.
// The file -shm is memory that connections share. It is built anew from the log by
// the first one that opens the file, so what becomes of it on the disk does not
// matter; what changes it while it is mapped is not found.
//
// # Files that another program wrote
//
// Another program that only reads may move pages from the log into the file when it
// closes it, if a process was killed before: they have no checksum then, which is
// allowed, until they are written the next time. Another program that changes a page leaves the checksum as it was, and the page is
// damaged. One that writes all pages anew, as VACUUM and VACUUM INTO do, leaves zeroes
// in place of the first page's checksum: such a file is unsealed, and its pages are
// taken as they are, until all are written anew through this layer.
package disk
