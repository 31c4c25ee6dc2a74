package postgres

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pglogrepl"
)

// spilled is a large transaction that the server streams before its end: its messages, in a
// file without a name.
type spilled struct {
	file    *os.File
	w       *bufio.Writer
	aborted map[uint32]bool // subtransactions that were rolled back: their messages are left out
}

func newSpilled() (*spilled, error) {
	f, err := os.CreateTemp("", "weir-transaction-")
	if err != nil {
		return nil, fmt.Errorf("a file for a large transaction: %w", err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &spilled{file: f, w: bufio.NewWriterSize(f, 256<<10), aborted: map[uint32]bool{}}, nil
}

// add appends a message of a (sub)transaction.
func (s *spilled) add(xid uint32, message []byte) error {
	var head [8]byte
	binary.BigEndian.PutUint32(head[:4], xid)
	binary.BigEndian.PutUint32(head[4:], uint32(len(message)))
	if _, err := s.w.Write(head[:]); err != nil {
		return err
	}
	_, err := s.w.Write(message)
	return err
}

// replay calls do with the messages that were not rolled back, and all descriptions, in their order.
func (s *spilled) replay(do func(message []byte) error) error {
	if err := s.w.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := bufio.NewReaderSize(s.file, 256<<10)
	for {
		var head [8]byte
		if _, err := io.ReadFull(r, head[:]); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		message := make([]byte, binary.BigEndian.Uint32(head[4:]))
		if _, err := io.ReadFull(r, message); err != nil {
			return err
		}
		// The server describes a relation once, also within a subtransaction that is rolled back later.
		if s.aborted[binary.BigEndian.Uint32(head[:4])] && message[0] != byte(pglogrepl.MessageTypeRelation) {
			continue
		}
		if err := do(message); err != nil {
			return err
		}
	}
}

func (s *spilled) close() error { return s.file.Close() }
