package store

import (
	"cmp"
	"strings"
)

// Compare orders keys by the bytes of the entity, then by service. Every
// statement that locks dam rows does it in this order, so that no two can
// dead-lock.
func (k Key) Compare(o Key) int {
	if c := strings.Compare(k.Entity, o.Entity); c != 0 {
		return c
	}
	return cmp.Compare(k.Service, o.Service)
}
