// Package disk is the layer between SQLite and the file system: a VFS around the
// one that SQLite has for the system. SQLite itself trusts its reads, and continues
// after an fsync that failed. This layer does neither.
//
// # Found
//
//   - A page of the database file that differs from the written one, of a file that Make
//     began: each page has a CRC-32C of its content and number in its last twelve
//     bytes, which SQLite leaves free there. The driver's own checksum accepts zeroes and
//     exchanged pages, and rejects files that another program wrote.
//   - A write-ahead log that differs from the written one, when the first connection after
//     a crash recovers it. SQLite would drop the damaged transaction and all after it.
//   - An fsync that failed. The kernel takes the pages for clean afterwards, so a
//     second fsync would acknowledge writes that the first one lost.
//
// The first of these is kept, closes Failed, and ends all writing through this Disk:
// continuing would acknowledge what may not be there.
//
// # Not found
//
//   - A page that is an older version of itself, with the checksum of then, and a log
//     that is gone as a whole: package sqlite compares with a note beside the file.
//   - A page of the log that changes while a process runs. The process wrote or verified
//     it, and reads it from the cache of the system until it moves into the database.
//   - A change of the shared memory in -shm. A crash does not matter to it: the first
//     connection builds it again from the log.
//
// # Files that another program wrote
//
// Another program that only reads may move pages from the log into the file when it
// closes it, if a process was killed before. VACUUM and VACUUM INTO write all pages. These
// pages have zeroes in place of the checksum, and are accepted until they are written
// through this layer. Another program that changes a page leaves the checksum as it was,
// and the page is damaged.
package disk
