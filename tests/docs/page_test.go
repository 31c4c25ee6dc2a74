package docs

import (
	"fmt"
	"regexp"
	"strings"
)

// block is one fenced block of a page.
type block struct {
	line int    // of its first line inside the fence
	info string // what stands behind the fence
	text string
}

// command is one line of a console block and its expected output.
type command struct {
	line   int
	text   string
	output []string
}

// blocks returns the fenced blocks of a page and the page without them, whose
// lines keep their numbers.
func blocks(page string) (found []block, prose []string, err error) {
	var open *block
	for i, l := range strings.Split(page, "\n") {
		switch {
		case open == nil && strings.HasPrefix(l, "```"):
			open = &block{line: i + 2, info: strings.TrimSpace(l[3:])}
			l = ""
		case open != nil && strings.HasPrefix(l, "```"):
			found, open, l = append(found, *open), nil, ""
		case open != nil:
			open.text += l + "\n"
			l = ""
		}
		prose = append(prose, l)
	}
	if open != nil {
		return nil, nil, fmt.Errorf("line %d: a block that does not end", open.line)
	}
	return found, prose, nil
}

// commands takes a console block apart.
func (b block) commands() (found []command, err error) {
	for i, l := range strings.Split(strings.TrimSuffix(b.text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(l, "$ "):
			found = append(found, command{line: b.line + i, text: l[2:]})
		case len(found) == 0:
			return nil, fmt.Errorf("line %d: output without a command", b.line+i)
		case strings.TrimSpace(l) != "":
			c := &found[len(found)-1]
			c.output = append(c.output, l)
		}
	}
	return found, nil
}

// missing returns the first line of want that output does not have behind the
// one before it; empty when all are there. White space counts as one blank.
func missing(want []string, output string) string {
	lines := strings.Split(output, "\n")
	at := 0
	for _, w := range want {
		parts := strings.Split(normal(w), "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
		for at < len(lines) && !pattern.MatchString(normal(lines[at])) {
			at++
		}
		if at == len(lines) {
			return w
		}
		at++
	}
	return ""
}

func normal(s string) string { return strings.Join(strings.Fields(s), " ") }
