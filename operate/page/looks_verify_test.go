//go:build verify

package page_test

import (
	"fmt"
	"testing"
)

// Each page in each width and colour, with few services and with 200 and 100,000
// dead letters.
func TestLooksOfAll(t *testing.T) {
	for size, s := range map[string]*scene{"few": newScene(t, 3, 40), "many": newScene(t, 200, 100_000)} {
		b := s.inBrowser()
		for _, width := range []int64{390, 1280, 1920} {
			for _, scheme := range []string{"light", "dark"} {
				b.dress(width, scheme)
				for name, path := range s.addresses() {
					what := fmt.Sprintf("%s-%d-%s-%s", name, width, scheme, size)
					b.open(path)
					b.look(what, width)
					b.axe(what)
				}
			}
		}
	}
}
