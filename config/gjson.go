package config

import (
	"strings"

	"github.com/tidwall/gjson"
)

var closing = map[byte]byte{'(': ')', '[': ']', '{': '}'}

// checkGJSON finds paths that gjson accepts silently and that never match: empty steps, brackets
// that do not match, modifiers that do not exist.
func checkGJSON(path string) *mistake {
	want := `a gjson path, like "banana.id" or "items.#.id"`
	if strings.TrimSpace(path) == "" {
		return &mistake{problem: "is empty", want: want}
	}
	var open []byte
	empty := true // the step so far
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '\\':
			if i+1 == len(path) {
				return &mistake{problem: "ends in a backslash", want: want}
			}
			i++
			empty = false
			continue
		case c == '"' && len(open) > 0:
			end := strings.IndexByte(path[i+1:], '"')
			if end < 0 {
				return &mistake{problem: "has a quote that does not end", want: want}
			}
			i += end + 1
		case c == '(' || c == '[' || c == '{':
			open = append(open, closing[c])
		case c == ')' || c == ']' || c == '}':
			if len(open) == 0 || open[len(open)-1] != c {
				return &mistake{problem: "has brackets that do not match", want: want}
			}
			open = open[:len(open)-1]
		case c == '@' && empty && len(open) == 0:
			modifier := path[i+1:]
			if end := strings.IndexAny(modifier, ".|:"); end >= 0 {
				modifier = modifier[:end]
			}
			if !gjson.ModifierExists(modifier, nil) {
				return &mistake{problem: "uses a modifier that gjson does not have", want: want}
			}
		case (c == '.' || c == '|') && len(open) == 0:
			if empty {
				return &mistake{problem: "has an empty step", want: want}
			}
			empty = true
			continue
		}
		empty = false
	}
	switch {
	case len(open) > 0:
		return &mistake{problem: "has brackets that do not match", want: want}
	case empty:
		return &mistake{problem: "has an empty step", want: want}
	}
	return nil
}
