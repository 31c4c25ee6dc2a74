// Package embedded keeps the inbox as a table of the SQLite
// file that has the state, for a process without brokers.
//
// # Model
//
// [Logs] holds topics. A topic is a log of package sqlite: the records
// of one append to a partition are one row. The process that has the file open for its
// logs holds a lock beside it, so there is one, which owns every partition.
//
//	Append ──▶ row ──commit──▶ wake ──▶ frame ──Ack──▶ next frame
//
// A reader close behind the writer takes the newest rows, up to 4 MiB of each log, from
// memory, and older ones from the file.
//
// A [Group] hands out the frames of one topic as Watermill messages, of each
// partition one at a time, like a transport.Group. It keeps no positions: those of
// decide and deliver are in the same file, and a transport.PartitionListener returns
// them.
//
// # Guarantee
//
// An append is acknowledged after the commit that makes it durable, in the order of
// the partition and without gaps between offsets. A commit that fails is not
// acknowledged: it is repeated until the file takes it or the caller stops waiting,
// and [Logs.Failing] returns the error meanwhile. Delivery is at least once, in order. A row whose
// checksum does not match is never handed out.
package embedded
