package disk

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The write-ahead log: a header, then frames, each with a header and a page.
// https://sqlite.org/fileformat2.html#the_write_ahead_log
const (
	walHeader   = 32
	frameHeader = 24
	walMagic    = 0x377f0682 // the lowest bit says that checksums are big-endian
	saltAt      = 8          // of a frame's header: the same as in that of the log
	sumAt       = 16
)

// frameAt returns the number of the frame, from 0, whose page has n bytes and is
// at an offset of the log.
func frameAt(n int, offset int64) (int64, bool) {
	if !isPage(n, 0) {
		return 0, false
	}
	behind, size := offset-walHeader-frameHeader, int64(n+frameHeader)
	return behind / size, behind >= 0 && behind%size == 0
}

// writeFrame notes the effect of a write on the checksums of a log. SQLite overwrites
// the page of a frame within a transaction, and the headers from it on before the
// commit only.
func (f *file) writeFrame(n int, offset int64) {
	if n == frameHeader {
		f.header = offset
		return
	}
	if number, ok := frameAt(n, offset); ok && f.header != offset-frameHeader && (f.stale == 0 || number+1 < f.stale) {
		f.stale = number + 1
	}
}

// verifyLog verifies a read of a log: a page, or, when SQLite recovers it, the
// header and whole frames.
func (f *file) verifyLog(b []byte, offset int64, short bool) error {
	if offset == 0 && len(b) == walHeader && !short {
		return f.verifyHeader(b)
	}
	if number, ok := frameAt(len(b), offset); ok {
		if f.stale != 0 && number+1 >= f.stale || !short && f.sound(number, b) {
			return nil
		}
		return f.badFrame(number, len(b))
	}
	number, ok := frameAt(len(b)-frameHeader, offset+frameHeader)
	if !ok || short || f.stale != 0 && number+1 >= f.stale || f.sound(number, b[frameHeader:]) {
		return nil
	}
	// SQLite ends the log before it. That is right for the transaction that was under
	// way, which is the last one: each is synced before the next one begins.
	if f.goesOn(number, len(b)-frameHeader) {
		return f.badFrame(number, len(b)-frameHeader)
	}
	return nil
}

func (f *file) badFrame(number int64, page int) error {
	at := walHeader + number*int64(page+frameHeader)
	return fmt.Errorf("%w: %s, frame %d, at byte %d, does not have the checksum that it was written with", ErrDamaged, f.name, number+1, at)
}

// verifyHeader finds a header that differs from the written one. It is in one sector, so a
// write of it that was cut off left the one before.
func (f *file) verifyHeader(header []byte) error {
	s0, s1 := walSum(byteOrder(header), header[:24], 0, 0)
	if magic := binary.BigEndian.Uint32(header); magic&^1 == walMagic && s0 == binary.BigEndian.Uint32(header[24:]) && s1 == binary.BigEndian.Uint32(header[28:]) {
		return nil
	}
	var zeroes [walHeader]byte
	if bytes.Equal(header, zeroes[:]) || f.bytes(frameHeader, walHeader) == nil {
		return nil // nothing was ever synced to it
	}
	return fmt.Errorf("%w: %s: its header, at byte 0, is not what was written", ErrDamaged, f.name)
}

// sound compares the page of a frame with the checksum in the frame's header, which goes
// on from that of the frame before, or of the log.
func (f *file) sound(number int64, page []byte) bool {
	size := frameHeader + len(page)
	if f.order == nil || number == 0 {
		first := f.bytes(walHeader+frameHeader, 0)
		if first == nil {
			return false
		}
		f.order = byteOrder(first)
		if number == 0 {
			return walFrame(f.order, first[walHeader-8:], first[walHeader:], page)
		}
	}
	before := f.bytes(size+frameHeader, walHeader+(number-1)*int64(size))
	return before != nil && walFrame(f.order, before[sumAt:], before[size:], page)
}

// walFrame compares a page with the checksum in its header; from is the one that it
// continues.
func walFrame(order binary.ByteOrder, from, header, page []byte) bool {
	s0, s1 := binary.BigEndian.Uint32(from), binary.BigEndian.Uint32(from[4:])
	s0, s1 = walSum(order, header[:8], s0, s1)
	s0, s1 = walSum(order, page, s0, s1)
	return s0 == binary.BigEndian.Uint32(header[sumAt:]) && s1 == binary.BigEndian.Uint32(header[sumAt+4:])
}

// goesOn reports whether from a frame on, whose page has n bytes, two transactions of
// this log end. Frames that a failed write left have no end.
func (f *file) goesOn(number int64, n int) bool {
	salt := bytes.Clone(f.bytes(walHeader, 0))
	if salt == nil {
		return false
	}
	ends := 0
	for ; ; number++ {
		header := f.bytes(frameHeader, walHeader+number*int64(n+frameHeader))
		if header == nil {
			return ends > 1
		}
		if !bytes.Equal(header[saltAt:sumAt], salt[16:24]) {
			continue // the damaged one, or of an earlier log
		}
		if binary.BigEndian.Uint32(header[4:]) != 0 { // the size of the database: a commit
			ends++
		}
	}
}

// byteOrder is that of the checksums of a log, from its header.
func byteOrder(header []byte) binary.ByteOrder {
	if header[3]&1 != 0 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// walSum is SQLite's own checksum of its log.
func walSum(order binary.ByteOrder, b []byte, s0, s1 uint32) (uint32, uint32) {
	if order == binary.LittleEndian {
		for ; len(b) >= 8; b = b[8:] {
			s0 += binary.LittleEndian.Uint32(b) + s1
			s1 += binary.LittleEndian.Uint32(b[4:]) + s0
		}
		return s0, s1
	}
	for ; len(b) >= 8; b = b[8:] {
		s0 += binary.BigEndian.Uint32(b) + s1
		s1 += binary.BigEndian.Uint32(b[4:]) + s0
	}
	return s0, s1
}
