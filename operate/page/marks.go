package page

import (
	"bytes"
	"fmt"
	"unicode"
)

// changesDirection reports whether a character changes the direction of the text around
// it, so that one text looks like another.
func changesDirection(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// showMarks makes such characters visible in the text of a page. Those within a
// tag are the values of fields, which must come back as they were.
func showMarks(page []byte) []byte {
	if bytes.IndexFunc(page, changesDirection) < 0 {
		return page
	}
	shown := make([]byte, 0, len(page)+64)
	tag := false
	for _, r := range string(page) { // of templates, whose texts are escaped: tags are all that has these
		switch r {
		case '<':
			tag = true
		case '>':
			tag = false
		}
		if !tag && changesDirection(r) {
			shown = fmt.Appendf(shown, "[U+%04X]", r)
			continue
		}
		shown = append(shown, string(r)...)
	}
	return shown
}
