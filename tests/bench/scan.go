package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"unsafe"
)

func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// appendHead is the initial byte and length of CBOR.
func appendHead(dst []byte, major byte, n int) []byte {
	switch {
	case n < 24:
		return append(dst, major<<5|byte(n))
	case n < 1<<8:
		return append(dst, major<<5|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major<<5|25), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(n))
}

// scanner is the least that a hash of structure must do besides the digest, and
// so what bounds one: every byte of the document is looked at once, the members
// of each object are put in order, and the whole is written out to be hashed.
// It checks next to nothing, leaves escapes as they are and copies names and
// values with their quotes; it is no hash that could be used.
type scanner struct {
	doc     []byte
	out     []byte
	spare   []byte
	members []span
}

// span is a member in out.
type span struct{ name, value, end int }

var errScan = errors.New("not JSON")

func (s *scanner) run(doc []byte) ([32]byte, error) {
	s.doc, s.out, s.members = doc, s.out[:0], s.members[:0]
	if s.value(0) != len(doc) {
		return [32]byte{}, errScan
	}
	return [32]byte{}, nil
}

// value copies the value at i and returns the offset behind it.
func (s *scanner) value(i int) int {
	switch s.doc[i] {
	case '{':
		return s.object(i + 1)
	case '[':
		s.out = append(s.out, '[')
		for i++; s.doc[i] != ']'; {
			i = s.value(i)
			if s.doc[i] == ',' {
				i++
			}
		}
		s.out = append(s.out, ']')
		return i + 1
	case '"':
		return s.text(i)
	}
	end := i
	for end < len(s.doc) && s.doc[end] != ',' && s.doc[end] != '}' && s.doc[end] != ']' {
		end++
	}
	s.out = append(s.out, s.doc[i:end]...)
	return end
}

func (s *scanner) text(i int) int {
	end := i + 1
	for {
		quote := bytes.IndexByte(s.doc[end:], '"')
		if quote < 0 {
			return len(s.doc) + 1
		}
		end += quote + 1
		if s.doc[end-2] != '\\' {
			break
		}
	}
	s.out = append(s.out, s.doc[i:end]...)
	return end
}

func (s *scanner) object(i int) int {
	s.out = append(s.out, '{')
	start, from, sorted := len(s.out), len(s.members), true
	for s.doc[i] != '}' {
		m := span{name: len(s.out)}
		i = s.text(i) + 1
		m.value = len(s.out)
		i = s.value(i)
		m.end = len(s.out)
		if sorted && len(s.members) > from {
			last := s.members[len(s.members)-1]
			sorted = bytes.Compare(s.out[last.name:last.value], s.out[m.name:m.value]) < 0
		}
		s.members = append(s.members, m)
		if s.doc[i] == ',' {
			i++
		}
	}
	if members := s.members[from:]; !sorted {
		slices.SortFunc(members, func(a, b span) int {
			return bytes.Compare(s.out[a.name:a.value], s.out[b.name:b.value])
		})
		s.spare = append(s.spare[:0], s.out[start:]...)
		at := start
		for _, m := range members {
			at += copy(s.out[at:], s.spare[m.name-start:m.end-start])
		}
	}
	s.members = s.members[:from]
	s.out = append(s.out, '}')
	return i + 1
}
