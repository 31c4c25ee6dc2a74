// Package terminal makes texts that came from elsewhere fit to be shown on a terminal:
// nothing in them steers it.
package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Visible returns a text for a table: quoted if it holds characters that do
// not print, or is no UTF-8.
func Visible(s string) string {
	if Harmless(s) == s && !strings.ContainsAny(s, "\t\n") {
		return s
	}
	return strconv.Quote(s)
}

// Line returns a text on one line, with a space for each newline and tab and escapes for control
// sequences of a terminal.
func Line(s string) string {
	return Harmless(strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(s))
}

// Harmless returns a text of several lines with control sequences of a terminal escaped.
func Harmless(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch piece := s[:size]; {
		case r == '\n' || r == '\t' || strconv.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b.WriteString(piece)
		default:
			quoted := strconv.Quote(piece)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// Cut shortens a text to n characters, of which the last says that it is cut.
func Cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
