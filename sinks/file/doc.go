// Package file is a sink that appends changes to a file of JSON lines.
//
// # Model
//
// One change is one line: its record (see change.AppendRecord) and a newline. It is a log sink:
// every change, in order per entity, retractions included. A reader of the newest state reads the
// file to its end and keeps the highest version of each entity. Order in the file is order of
// delivery: a dead letter that is replayed later comes late, with its own, lower version.
//
// # Guarantee
//
// A change that deliver sees confirmed is a whole line that was fsynced; so is
// the file's entry in its directory. Each change is in the file once, within the
// window below.
//
// A crash may leave unconfirmed lines. Open reads the end of the file,
// from the disk and not from pages that the kernel kept after a failed fsync, and
// repairs it:
//
//   - A last line without its newline is completed when it is a whole record,
//     else cut off: its Write was not confirmed and is repeated.
//   - A line with a NUL byte, which no JSON text has, is where a write did not
//     reach the disk before a power loss. The file is cut off there, but only
//     when no whole record follows it. One that does may have been
//     confirmed, so the zeroes may be a failing disk's: Open says where they
//     are and touches nothing. So it does with a single NUL, and with a record
//     that has something else behind it than a newline: a bit has turned.
//   - Anything else that is no record was not written by this sink. Open says
//     where it is and touches nothing.
//
// # The window of known keys
//
// A repeated change is recognised by its key, among the last
// 200,000 keys (some 12 MB when full). After a start they are read back from the
// last 256 MiB of the file, so a start takes the same time for a file of any
// size. Deliver repeats unconfirmed changes, which are at most the last
// Writes of each partition: some thousand changes, or 16 MiB each. The window
// covers that many times over. A change that is older than the window and repeated nevertheless, as
// after the state store was restored from an old backup, is appended again with
// the same key: readers that must not see it twice compare keys.
//
// # Other programs and the file
//
// One process writes a file: it holds an advisory lock (flock) on it. Others may read it at any
// time. A last line without a newline is not there yet, and lines at the end may go again, to
// come back, when a disk is full or fails. A file that was moved away, deleted or cut short by
// another process is noticed at the next Write, which appends to the rest, or in a new file under
// the same path. A file that was cut short takes the keys of its lines with it: such a change is
// written again when it is repeated. The keys of a file that was moved away or deleted stay known
// until a restart.
//
// # Not promised
//
// Rotation, compression. A lock on file systems without flock, as some network
// file systems are. Durability beyond that of fsync on the machine.
package file
