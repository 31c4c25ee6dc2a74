package store

import (
	"cmp"
	"strings"
)

// What follows is shared by the implementations.

// Compare orders keys by the bytes of the entity, then by service. Every
// statement that locks dam rows does it in this order, so that no two can
// dead-lock.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Entity, o.Entity); c != 0 {
		return c
	}
	return cmp.Compare(k.Service, o.Service)
}

// SanitizeText replaces characters that a text column cannot hold (NUL, invalid UTF-8) by
// U+FFFD, for texts that describe and must never be refused.
func SanitizeText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
