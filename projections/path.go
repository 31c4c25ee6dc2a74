package projections

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// path is a compiled gjson path: steps that are read from the tree, and a rest
// that gjson reads from the text of the value at their end.
type path struct {
	steps []step
	fixed int // steps before the first hash
	// rest is the pieces between pipes, empty when the steps are the whole path.
	rest   []string
	number int // among the paths that the projection reads of the document
}

// hashed reports whether a step is a hash: the steps are the whole path then.
func (p *path) hashed() bool { return p.fixed < len(p.steps) }

// in goes along the path. At a hash on an array it stops and returns its place, otherwise -1.
func (p *path) in(doc source) (v canonicaltree.Node, hashed int) {
	v = doc.read(p.number, p.steps[:p.fixed])
	if !p.hashed() {
		return v, -1
	}
	if v, hashed = follow(v, p.steps[p.fixed:]); hashed >= 0 {
		hashed += p.fixed
	}
	return v, hashed
}

// step goes to the member of an object, to the element of an array if it has an
// index, or, as a hash, over all elements.
type step struct {
	name  string // empty for an element in a filter
	index int    // -1: none
	hash  bool
}

// element reports whether the step leads to elements of arrays alone.
func (s *step) element() bool { return s.index >= 0 && s.name == "" }

// from returns the value that the step reaches from v. For a hash it is the member of that name.
func (s *step) from(v canonicaltree.Node) canonicaltree.Node {
	switch {
	case v.Kind() == canonicaltree.Array:
		return v.At(s.index)
	case s.element():
		return canonicaltree.Node{}
	}
	return v.Get(s.name)
}

// modifiers are gjson's built-in ones. Others could be registered in the process, which must not
// change the outputs of projections.
var modifiers = []string{
	"dig", "flatten", "fromstr", "group", "join", "keys", "pretty", "reverse",
	"this", "tostr", "ugly", "valid", "values",
}

// pathFault is an error of a path, at a byte of it.
type pathFault struct {
	at        int
	msg, want string
}

// parsePath compiles text. It returns at most one fault.
func parsePath(text string) (path, *pathFault) {
	switch {
	case text == "":
		return path{}, &pathFault{0, "is empty", "name a member, or @this for the whole value"}
	case !utf8.ValidString(text):
		return path{}, &pathFault{0, "is not valid UTF-8", "write it in UTF-8: no other member can be there"}
	case text == "@this":
		return path{}, nil
	}
	var p path
	var starts []int // of steps
	cut := func(at int) (path, *pathFault) {
		// gjson maps over an array together with all that follows, so the rest
		// begins at the first hash.
		for i, s := range p.steps {
			if s.hash {
				p.steps, at = p.steps[:i], starts[i]
				break
			}
		}
		fault := checkPath(text, at)
		if fault == nil {
			p.rest = splitPipes(text, at)
		}
		return p, fault
	}
	for at := 0; ; {
		if at == len(text) {
			return path{}, &pathFault{at, "has an empty part", "put one dot between parts, none at the end"}
		}
		switch text[at] {
		case '@', '[', '{':
			return cut(at)
		}
		part, fault := scanPart(text, at)
		if fault != nil {
			return path{}, fault
		}
		if part.complex {
			return cut(at)
		}
		starts = append(starts, at)
		p.steps = append(p.steps, part.step)
		if part.end == len(text) {
			return p, nil
		}
		at = part.end + 1
		if text[part.end] == '|' {
			return cut(at)
		}
	}
}

// splitPipes splits text from at on, which has no fault, at its pipes, also at those
// that gjson sees in a dot: behind a modifier or a multipath, and before one. Steps
// mapped over an array stay in one piece with all that follows.
func splitPipes(text string, at int) (pieces []string) {
	from, mapped := at, 0 // parts of this piece from its first hash on
	for {
		made := makes(text[at:])
		if mapped > 0 || text[at] == '#' {
			mapped++
		}
		end, _ := partEnd(text, at)
		if end == len(text) {
			return append(pieces, text[from:])
		}
		at = end + 1
		if text[end] == '|' && mapped < 2 || mapped == 0 && (made || makes(text[at:])) {
			pieces, from, mapped = append(pieces, text[from:end]), at, 0
		}
	}
}

// makes reports whether text begins with a modifier or a multipath, which makes
// something of any value. All else selects, and only from arrays and objects.
func makes(text string) bool { return strings.IndexByte("@[{", text[0]) >= 0 }

// part is one part of a path, between dots and pipes.
type part struct {
	step    step
	complex bool // a wildcard or a query
	end     int  // of the part in the text
}

// scanPart reads the part of text that begins at at, by the rules of gjson.
func scanPart(text string, at int) (part, *pathFault) {
	if strings.HasPrefix(text[at:], "#(") || strings.HasPrefix(text[at:], "#[") {
		return scanQuery(text, at)
	}
	if text[at] == '!' {
		return part{}, &pathFault{at, "begins with !, a literal of gjson", `use const for a literal, or write \! for a member's name`}
	}
	var name []byte
	escaped, wild := false, false
	i := at
scan:
	for ; i < len(text); i++ {
		switch c := text[i]; c {
		case '.', '|':
			break scan
		case '\\':
			i++
			if i == len(text) {
				return part{}, &pathFault{i - 1, "ends in a single backslash", `write \\ for a backslash in a name`}
			}
			escaped = true
		case '*', '?':
			wild = true
		}
		name = append(name, text[i])
	}
	if i == at {
		return part{}, &pathFault{at, "has an empty part", `put one dot between parts; write \. for a dot in a name`}
	}
	s := step{name: string(name), index: -1}
	switch {
	case escaped || wild:
	case s.name == "#":
		s.hash = true
	case digits(s.name):
		n, err := strconv.Atoi(s.name)
		if err != nil || strconv.Itoa(n) != s.name {
			return part{}, &pathFault{at, "has an index that is not written plainly", `drop leading zeros, or write \` + s.name + " for a member of that name"}
		}
		s.index = n
	}
	return part{step: s, complex: wild, end: i}, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// scanQuery reads #(…) or #(…)#, which begins at at, and checks the path in it.
func scanQuery(text string, at int) (part, *pathFault) {
	end, fault := balanced(text, at+1)
	if fault != nil {
		return part{}, fault
	}
	query := text[at+2 : end-1]
	if fault := checkQuery(query, at+2, text); fault != nil {
		return part{}, fault
	}
	if end < len(text) && text[end] == '#' {
		end++
	}
	if end < len(text) && text[end] != '.' && text[end] != '|' {
		return part{}, &pathFault{end, "goes on right after a query", "put a dot or a pipe after #(…) or #(…)#"}
	}
	return part{complex: true, end: end}, nil
}

// balanced returns the end of the bracket that opens at at, behind its close.
func balanced(text string, at int) (int, *pathFault) {
	var open []byte
	for i := at; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if pair := string(open[len(open)-1]) + string(c); pair != "()" && pair != "[]" && pair != "{}" {
				return 0, &pathFault{i, "closes a bracket by one of another kind", "close " + string(open[len(open)-1]) + " by its own kind"}
			}
			if open = open[:len(open)-1]; len(open) == 0 {
				return i + 1, nil
			}
		}
	}
	return 0, &pathFault{at, "opens a bracket or a string that is never closed", "close it, or escape it with a backslash in a name"}
}

// checkQuery checks the text in the brackets of a query: a path, an operator
// and a value, of which all may be missing but not at once.
func checkQuery(query string, offset int, text string) *pathFault {
	if strings.TrimSpace(query) == "" {
		return &pathFault{offset, "has an empty query", `write what to look for, such as #(kind=="ripe")`}
	}
	depth, op := 0, len(query)
scan:
	for i := 0; i < len(query); i++ {
		switch query[i] {
		case '\\':
			i++
		case '"':
			for i++; i < len(query) && query[i] != '"'; i++ {
				if query[i] == '\\' {
					i++
				}
			}
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			depth--
		case '!', '=', '<', '>', '%':
			if depth == 0 {
				op = i
				break scan
			}
		}
	}
	left := strings.TrimRight(query[:op], " ")
	lead := len(left) - len(strings.TrimLeft(left, " "))
	if op < len(query) {
		rest := strings.TrimLeft(query[op:], "!=<>%")
		switch query[op : len(query)-len(rest)] {
		case "=", "==", "!=", "<", "<=", ">", ">=", "%", "!%":
		default:
			return &pathFault{offset + op, "has an unknown operator", "use ==, !=, <, <=, >, >=, % or !%"}
		}
		operand := strings.TrimSpace(rest)
		if f, err := strconv.ParseFloat(operand, 64); err != nil && errors.Is(err, strconv.ErrRange) || math.Abs(f) >= exactFloat {
			return &pathFault{offset + len(query) - len(rest), "compares with a number of 2^53 or more, which a query rounds", "use an expression, such as filter(doc.items, .id == 9007199254740993)"}
		}
		if !isOperand(operand) {
			return &pathFault{offset + len(query) - len(rest), "compares with what is no number, text, true or false", `write a text in quotes, null as ~null, and only one comparison in a query`}
		}
	}
	if lead == len(left) {
		return nil // the element itself is compared
	}
	return checkPath(text[:offset+len(left)], offset+lead)
}

// isOperand reports whether gjson compares with text as it is meant. It takes
// anything else that it meets in a number's place for 0.
func isOperand(text string) bool {
	switch text {
	case "~true", "~false", "~null", "~*":
		return true
	}
	tree, err := canonicaltree.Parse([]byte(text))
	if err != nil {
		return false
	}
	defer tree.Release()
	kind := tree.Root().Kind()
	return kind != canonicaltree.Null && kind < canonicaltree.Array
}

// checkPath checks the syntax of text from at on, where gjson starts to read.
func checkPath(text string, at int) *pathFault {
	if at == len(text) {
		return &pathFault{at, "has an empty part", "name a member after a pipe or a dot"}
	}
	end, fault := partEnd(text, at)
	if fault != nil || end == len(text) {
		return fault
	}
	if text[end] != '.' && text[end] != '|' {
		return &pathFault{end, "goes on where a part has ended", "put a dot or a pipe between parts"}
	}
	return checkPath(text, end+1)
}

// partEnd checks the part at at, of any kind, and returns its end.
func partEnd(text string, at int) (int, *pathFault) {
	switch text[at] {
	case '@':
		return checkModifier(text, at)
	case '[', '{':
		return checkMultipath(text, at)
	}
	p, fault := scanPart(text, at)
	return p.end, fault
}

// checkModifier checks the modifier at at and returns the end of its argument.
func checkModifier(text string, at int) (int, *pathFault) {
	end := at
	for end < len(text) && text[end] != ':' && text[end] != '.' && text[end] != '|' {
		end++
	}
	if name := text[at+1 : end]; !slices.Contains(modifiers, name) {
		return 0, &pathFault{at, "has an unknown modifier @" + name,
			"use one of @" + strings.Join(modifiers, ", @") + `; write \@` + name + " for a member of that name"}
	}
	if end == len(text) || text[end] != ':' {
		return end, nil
	}
	end++
	if end < len(text) && (text[end] == '{' || text[end] == '[') {
		close, fault := balanced(text, end)
		if fault == nil {
			if _, err := canonicaltree.Parse([]byte(text[end:close])); err != nil {
				fault = &pathFault{end, "has an argument that is not JSON", `write it as JSON, such as @pretty:{"indent":""}`}
			}
		}
		return close, fault
	}
	if end == len(text) || text[end] == '|' {
		return 0, &pathFault{end, "has a colon without an argument", "write an argument or drop the colon"}
	}
	for ; end < len(text) && text[end] != '|'; end++ {
		if strings.IndexByte(`{["(`, text[end]) < 0 {
			continue
		}
		var close int
		var fault *pathFault
		if text[end] == '"' {
			close, fault = closeString(text, end)
		} else {
			close, fault = balanced(text, end)
		}
		if fault != nil {
			return 0, fault
		}
		end = close - 1
	}
	return end, nil
}

func closeString(text string, at int) (int, *pathFault) {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1, nil
		}
	}
	return 0, &pathFault{at, "opens a string that is never closed", "close it"}
}

// checkMultipath checks [a,b] or {"x":a,b} at at and returns its end.
func checkMultipath(text string, at int) (int, *pathFault) {
	end, fault := balanced(text, at)
	if fault != nil {
		return 0, fault
	}
	for from := at + 1; from < end; {
		to, colon := from, -1
		for depth, modifier := 0, false; to < end-1 && (depth > 0 || text[to] != ','); to++ {
			switch text[to] {
			case '\\':
				to++
			case '@':
				modifier = true
			case ':':
				if depth == 0 && colon < 0 && !modifier {
					colon = to
				}
			case '"':
				close, fault := closeString(text, to)
				if fault != nil {
					return 0, fault
				}
				to = close - 1
			case '(', '[', '{':
				depth++
			case ')', ']', '}':
				depth--
			}
		}
		to = min(to, end-1)
		if colon >= 0 {
			from = colon + 1
		}
		if from == to {
			return 0, &pathFault{from, "selects nothing between commas", "write a path in each place"}
		}
		if fault := checkPath(text[:to], from); fault != nil {
			return 0, fault
		}
		from = to + 1
	}
	return end, nil
}
