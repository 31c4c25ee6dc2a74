// Package wire appends and reads the fields of compact binary forms: numbers as varints
// or of eight bytes, texts with their length in front.
package wire

import "encoding/binary"

// Append appends a text with its length in front.
func Append[T ~string | ~[]byte](dst []byte, text T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// Reader cuts fields off the front of Rest. After the first failure every further read
// returns zero values.
type Reader struct {
	Rest   []byte
	Failed bool
}

// Take removes the next n bytes. The result is a part of Rest.
func (r *Reader) Take(n uint64) []byte {
	if r.Failed || n > uint64(len(r.Rest)) {
		r.Failed = true
		return nil
	}
	out := r.Rest[:n:n]
	r.Rest = r.Rest[n:]
	return out
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if b := r.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads eight bytes, the highest first.
func (r *Reader) Uint64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Varint reads what [binary.AppendVarint] wrote.
func (r *Reader) Varint() int64 {
	n, used := binary.Varint(r.Rest)
	return n * r.skip(used)
}

// Uvarint reads what [binary.AppendUvarint] wrote.
func (r *Reader) Uvarint() uint64 {
	n, used := binary.Uvarint(r.Rest)
	return n * uint64(r.skip(used))
}

// skip moves past a number of used bytes and returns 1, or 0 without a number.
func (r *Reader) skip(used int) int64 {
	if used <= 0 || r.Failed {
		r.Failed = true
		return 0
	}
	r.Rest = r.Rest[used:]
	return 1
}

// Count reads the length of a list, which cannot be longer than the bytes that are left.
func (r *Reader) Count() uint64 {
	n := r.Uvarint()
	if n > uint64(len(r.Rest)) {
		r.Failed = true
		return 0
	}
	return n
}

// Bytes reads a text written by Append. The result is a part of Rest.
func (r *Reader) Bytes() []byte { return r.Take(r.Uvarint()) }

// Text is Bytes as a string.
func (r *Reader) Text() string { return string(r.Bytes()) }
