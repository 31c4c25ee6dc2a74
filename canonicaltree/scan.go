package canonicaltree

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// Strings are scanned a word of eight bytes at a time.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, in the high bit of its byte, what ends a run of plain string content: a quote, a
// backslash, a control character. Borrows only run upwards, so the lowest mark is exact. The
// marks above it may be false.
func special(w uint64) uint64 {
	return ((w - ones*0x20) | ((w ^ ones*'"') - ones) | ((w ^ ones*'\\') - ones)) &^ w & highs
}

// simpleEnd returns the offset of the quote that ends the string whose content
// starts at i, if all before it is ASCII without escapes and not at the very end
// of the document; -1 says to look closer with scanString.
func simpleEnd(data []byte, i int) int {
	for ; i+8 <= len(data); i += 8 {
		w := binary.LittleEndian.Uint64(data[i:])
		if m := plainEnd(w); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			if data[i] == '"' {
				return i
			}
			return -1
		}
	}
	return -1
}

// plainRun returns the offset of the first special byte at or after i, or the
// length of data, and whether the bytes before it are all ASCII.
func plainRun(data []byte, i int) (end int, ascii bool) {
	var seen uint64
	for i+8 <= len(data) {
		w := binary.LittleEndian.Uint64(data[i:])
		if m := special(w); m != 0 {
			seen |= w & (m&-m - 1)
			return i + bits.TrailingZeros64(m)>>3, seen&highs == 0
		}
		seen |= w
		i += 8
	}
	for i < len(data) {
		c := data[i]
		if c < 0x20 || c == '"' || c == '\\' {
			break
		}
		seen |= uint64(c)
		i++
	}
	return i, seen&highs == 0
}

// scanString reads the string whose content starts at i. It returns the offset of
// the closing quote. For a string with escapes it also puts the content at the
// end of t.text and returns where it starts there, otherwise -1.
func (t *Tree) scanString(i int) (end, text int, err error) {
	text = -1
	for {
		end, ascii := plainRun(t.data, i)
		if !ascii {
			if err := checkUTF8(t.data, i, end); err != nil {
				return 0, 0, err
			}
		}
		if end == len(t.data) {
			return 0, 0, &SyntaxError{int64(end), "unterminated string"}
		}
		if t.data[end] == '"' {
			if text >= 0 {
				t.text = append(t.text, t.data[i:end]...)
			}
			return end, text, nil
		}
		if t.data[end] != '\\' {
			return 0, 0, &SyntaxError{int64(end), "raw control character in a string"}
		}
		if text < 0 {
			text = len(t.text)
		}
		t.text = append(t.text, t.data[i:end]...)
		if i, err = t.unescape(end); err != nil {
			return 0, 0, err
		}
	}
}

// checkUTF8 checks data[i:end]. Without this, U+FFFD would make different bad
// strings equal.
func checkUTF8(data []byte, i, end int) error {
	if utf8.Valid(data[i:end]) {
		return nil
	}
	for i < end {
		r, size := utf8.DecodeRune(data[i:end])
		if r == utf8.RuneError && size == 1 {
			break
		}
		i += size
	}
	return &SyntaxError{int64(i), "invalid UTF-8"}
}

// unescape appends the character of the escape whose backslash is at i to
// t.text and returns the offset behind it.
func (t *Tree) unescape(i int) (int, error) {
	if i+1 == len(t.data) {
		return 0, &SyntaxError{int64(i + 1), "unterminated string"}
	}
	c := t.data[i+1]
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		return t.unescapeUnicode(i)
	default:
		return 0, &SyntaxError{int64(i + 1), "unknown escape"}
	}
	t.text = append(t.text, c)
	return i + 2, nil
}

func (t *Tree) unescapeUnicode(i int) (int, error) {
	r, err := t.hex4(i + 2)
	if err != nil {
		return 0, err
	}
	switch {
	case r < 0xD800 || r > 0xDFFF:
		t.text = utf8.AppendRune(t.text, r)
		return i + 6, nil
	case r < 0xDC00 && bytes.HasPrefix(t.data[i+6:], []byte(`\u`)):
		low, err := t.hex4(i + 8)
		if err != nil {
			return 0, err
		}
		if low >= 0xDC00 && low <= 0xDFFF {
			t.text = utf8.AppendRune(t.text, 0x10000+(r-0xD800)<<10+(low-0xDC00))
			return i + 12, nil
		}
	}
	return 0, &SyntaxError{int64(i), "lone surrogate"}
}

// hex4 reads four hexadecimal digits at i.
func (t *Tree) hex4(i int) (rune, error) {
	var r rune
	for k := i; k < i+4; k++ {
		if k >= len(t.data) {
			return 0, &SyntaxError{int64(len(t.data)), "unterminated string"}
		}
		c := t.data[k]
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, &SyntaxError{int64(k), "bad hexadecimal digit in an escape"}
		}
		r = r<<4 | rune(c)
	}
	return r, nil
}

// scanNumber reads the number that starts at i, with a minus sign or a digit.
// It returns the offset behind it and whether the literal is its own normal form
// in decimal mode.
func scanNumber(data []byte, i int) (end int, isPlain bool, err error) {
	start := i
	if data[i] == '-' {
		i++
	}
	first := i
	i = skipDigits(data, i)
	if i == first {
		return 0, false, unexpected(data, i, "digit")
	}
	if data[first] == '0' && i > first+1 {
		return 0, false, &SyntaxError{int64(first), "leading zero in a number"}
	}
	isPlain = data[i-1] != '0' || i == start+1
	if i < len(data) && data[i] == '.' {
		isPlain = false
		first, i = i+1, skipDigits(data, i+1)
		if i == first {
			return 0, false, unexpected(data, i, "digit")
		}
	}
	if i < len(data) && data[i]|0x20 == 'e' {
		isPlain = false
		i++
		if i < len(data) && (data[i] == '+' || data[i] == '-') {
			i++
		}
		first, i = i, skipDigits(data, i)
		if i == first {
			return 0, false, unexpected(data, i, "digit")
		}
	}
	return i, isPlain, nil
}

func skipDigits(data []byte, i int) int {
	for i < len(data) && data[i]-'0' <= 9 {
		i++
	}
	return i
}

// skipSpace returns the offset of the first byte at or after i that is not white
// space. Most often that is i.
func skipSpace(data []byte, i int) int {
	if i < len(data) && data[i] <= ' ' {
		return skipSpaces(data, i)
	}
	return i
}

func skipSpaces(data []byte, i int) int {
	for i < len(data) {
		switch data[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

// unexpected is the error of finding something else, or the end, at i.
func unexpected(data []byte, i int, want string) error {
	if i >= len(data) {
		return &SyntaxError{int64(len(data)), "unexpected end, want " + want}
	}
	return &SyntaxError{int64(i), "unexpected byte, want " + want}
}
