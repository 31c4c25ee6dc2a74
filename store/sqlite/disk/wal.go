package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The write-ahead log: a header, then frames, each with a header and a page.
// https://sqlite.org/fileformat2.html#the_write_ahead_log
const (
	walHeader   = 32
	frameHeader = 24
	walMagic    = 0x377f0682 // the lowest bit says that checksums are big-endian
)

// verifyLog returns how a log with a header differs from the written one. SQLite ends the
// log before the first frame whose checksum is wrong, without an error. That is right in
// the last transaction only, which a crash may have interrupted: each is synced before the
// next one begins. SQLite holds the lock of recovery meanwhile, which excludes writers.
func verifyLog(log io.ReaderAt, header []byte) error {
	var order binary.ByteOrder = binary.LittleEndian
	if header[3]&1 != 0 {
		order = binary.BigEndian
	}
	sum := func(s0, s1 uint32, b []byte) (uint32, uint32) {
		for ; len(b) >= 8; b = b[8:] {
			s0 += order.Uint32(b) + s1
			s1 += order.Uint32(b[4:]) + s0
		}
		return s0, s1
	}
	same := func(s0, s1 uint32, stored []byte) bool {
		return s0 == binary.BigEndian.Uint32(stored) && s1 == binary.BigEndian.Uint32(stored[4:])
	}
	// It is in one sector, so an interrupted write of it left the one before.
	s0, s1 := sum(0, 0, header[:24])
	if binary.BigEndian.Uint32(header)&^1 != walMagic || !same(s0, s1, header[24:]) {
		var zeroes [walHeader]byte
		_, err := log.ReadAt(make([]byte, frameHeader), walHeader)
		if bytes.Equal(header, zeroes[:]) || errors.Is(err, io.EOF) {
			return nil // nothing was ever synced to it
		}
		return errors.New("its header, at byte 0, is not what was written")
	}
	frame := make([]byte, frameHeader+binary.BigEndian.Uint32(header[8:]))
	damaged, commits := int64(0), 0 // the number of the first damaged frame; from there on
	for number := int64(1); commits < 2; number++ {
		if n, _ := log.ReadAt(frame, walHeader+(number-1)*int64(len(frame))); n < len(frame) {
			return nil
		}
		ofThisLog := bytes.Equal(frame[8:16], header[16:24])
		if damaged == 0 {
			s0, s1 = sum(s0, s1, frame[:8])
			s0, s1 = sum(s0, s1, frame[frameHeader:])
			if ofThisLog && same(s0, s1, frame[16:]) {
				continue
			}
			damaged = number
		}
		// The size of the database is in frames that end a transaction. Frames that a failed
		// write left have no end.
		if ofThisLog && binary.BigEndian.Uint32(frame[4:]) != 0 {
			commits++
		}
	}
	return fmt.Errorf("frame %d, at byte %d, does not have the checksum that it was written with",
		damaged, walHeader+(damaged-1)*int64(len(frame)))
}
