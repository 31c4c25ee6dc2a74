// Package bom handles byte order marks and text that is not UTF-8 because it is UTF-16,
// which JSON between systems never is (RFC 8259, section 8.1).
package bom

import "bytes"

// Trim returns text without a leading UTF-8 byte order mark.
func Trim(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) }

// UTF16 reports whether a JSON text is UTF-16, by its byte order mark or by a NUL among its
// first two bytes, which no JSON in UTF-8 has.
func UTF16(text []byte) bool {
	return len(text) > 1 && (text[0] == 0xff && text[1] == 0xfe || text[0] == 0xfe && text[1] == 0xff || (text[0] == 0) != (text[1] == 0))
}
