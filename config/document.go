package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file, since the parser's work grows with the square of the
// nesting: its bytes, and how deeply collections may be nested
// on a line.
const (
	maxFile  = 1 << 20
	maxDepth = 64
)

// document is one file: the places of its keys and values, and their
// literals.
type document struct {
	file   string
	keys   map[string]Position // by path: where the key stands
	values map[string]scalar   // by path: the scalar
	files  map[string]string   // by path, or by reference: the file that is named
	lines  []string            // the text
	bad    map[string]bool     // paths whose value has a fault: errors that follow from it are not reported
	faults *Faults
	data   []byte
	// references are those that decoding resolved, with their values.
	references map[string]string
}

// scalar is a value as it is written.
type scalar struct {
	at  Position
	raw string // "***" for a secret
	// plain says that the value is its literal: no secret, no reference.
	plain bool
	// unresolved says that the text still holds references that have no value.
	unresolved bool
	// text is raw with the values of its references, which are the pieces. Both are empty for a
	// secret.
	text   string
	pieces []piece
}

func newDocument(file string, faults *Faults) *document {
	return &document{file: file, keys: map[string]Position{}, values: map[string]scalar{}, files: map[string]string{}, bad: map[string]bool{}, faults: faults, references: map[string]string{}}
}

// read parses the file. It returns nil after a fault, and for an empty file.
func (d *document) read() ast.Node {
	if !d.load() {
		return nil
	}
	return d.parse()
}

// load reads the file; false after a fault.
func (d *document) load() bool {
	var err error
	if d.data, err = readFile(d.file); err != nil {
		var cause *os.PathError
		if errors.As(err, &cause) {
			err = cause.Err
		}
		d.faults.add(Fault{File: d.file, Problem: "cannot be read: " + err.Error(), Want: "a readable file"})
	}
	return err == nil
}

// readFile reads a little more than a file may have. It does not wait for a writer
// of a named pipe: a running process, too, reads its files again.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// parse parses the text that was read.
func (d *document) parse() (root ast.Node) {
	// Any author of a file feeds the parser; none of its faults may
	// end the process.
	defer func() {
		if recover() != nil {
			root = nil
			d.faults.add(Fault{File: d.file, Problem: "is not YAML", Want: "a YAML mapping"})
		}
	}()
	if len(d.data) > maxFile {
		d.faults.add(Fault{File: d.file, Problem: "is too large", Want: fmt.Sprintf("at most %s", Size(maxFile))})
		return nil
	}
	text := strings.TrimPrefix(string(d.data), "\ufeff")
	d.lines = strings.Split(text, "\n")
	for line, content := range d.lines {
		if !utf8.ValidString(content) {
			d.faults.add(Fault{File: d.file, Line: line + 1, Column: 1, Problem: "is not valid UTF-8", Want: "text in UTF-8"})
			return nil
		}
	}
	tokens := lexer.Tokenize(text)
	if deep := tooDeep(tokens); deep != nil {
		d.faults.add(Fault{File: d.file, Line: deep.Line, Column: deep.Column,
			Problem: "is nested too deeply", Want: fmt.Sprintf("at most %d collections inside one another", maxDepth)})
		return nil
	}
	if many := tooMany(tokens); many != nil {
		d.faults.add(Fault{File: d.file, Line: many.Line, Column: many.Column,
			Problem: "has too many keys in one mapping", Want: fmt.Sprintf("at most %d", maxKeys)})
		return nil
	}
	if at, m := d.misread(tokens); m != nil {
		d.add(at, "", "", *m)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		fault := Fault{File: d.file, Problem: "is not YAML", Want: "a YAML mapping"}
		var syntax yaml.Error
		if errors.As(err, &syntax) {
			fault.Problem = "is not YAML: " + quoted.ReplaceAllString(syntax.GetMessage(), "…")
			if p := position(syntax.GetToken()); p != nil {
				fault.Line, fault.Column = p.Line, p.Column
			}
		}
		d.faults.add(fault)
		return nil
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		d.faults.add(Fault{File: d.file, Problem: "is empty", Want: "a YAML mapping"})
		return nil
	case 1:
		return bodies[0]
	}
	at := d.place(bodies[1])
	d.faults.add(Fault{File: d.file, Line: at.Line, Column: at.Column,
		Problem: "has more than one document", Want: "one document per file"})
	return bodies[0]
}

// tooDeep returns the place where a file is nested too deeply: in brackets, or in
// lists that begin on one line.
func tooDeep(tokens token.Tokens) *token.Position {
	brackets, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType:
			entries++
		}
		if brackets > maxDepth || entries > maxDepth {
			return t.Position
		}
	}
	return nil
}

// maxKeys bounds the keys of one mapping, the time of whose parsing grows with
// their square.
const maxKeys = 5000

// tooMany returns the place of the first key of a mapping that has too many. Those
// within brackets are cheap.
func tooMany(tokens token.Tokens) *token.Position {
	type mapping struct{ column, keys int }
	var open []mapping // from the outermost
	brackets := 0
	for i, t := range tokens {
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		}
		if brackets > 0 || i == 0 || t.Type != token.MappingValueType && t.Type != token.SequenceEntryType {
			continue
		}
		at := t.Position
		if t.Type == token.MappingValueType {
			at = tokens[i-1].Position
		}
		for len(open) > 0 && open[len(open)-1].column > at.Column {
			open = open[:len(open)-1]
		}
		if t.Type == token.SequenceEntryType {
			continue
		}
		if len(open) == 0 || open[len(open)-1].column < at.Column {
			open = append(open, mapping{column: at.Column})
		}
		if open[len(open)-1].keys++; open[len(open)-1].keys > maxKeys {
			return at
		}
	}
	return nil
}

// misread finds text that the parser silently takes for another one: it leaves out
// tabs within text that has no quotes, and makes some character of an escape whose
// digits are none.
func (d *document) misread(tokens token.Tokens) (at Position, m *mistake) {
	lines := make([][]rune, len(d.lines)) // as far as they were looked at: a file may be one line of many texts
	for _, t := range tokens {
		at = Position{d.file, t.Position.Line, t.Position.Column}
		switch t.Type {
		case token.DoubleQuoteType:
			if at, ok := d.badEscape(lines, at); ok {
				return at, &mistake{problem: "has an escape that is no character", want: `\x and 2 hexadecimal digits, \u and 4, or \U and 8; \\ is a backslash`}
			}
		case token.SingleQuoteType, token.CommentType, token.LiteralType, token.FoldedType:
		default:
			for line := range strings.Lines(t.Origin) {
				if strings.Contains(strings.TrimSpace(line), "\t") && !strings.Contains(t.Value, "\t") {
					return at, &mistake{problem: "has a tab in text without quotes", want: "spaces, or the text in single quotes"}
				}
			}
		}
	}
	return at, nil
}

// badEscape returns the first escape of the text in double quotes that begins at a
// place, whose number is not that of a character.
func (d *document) badEscape(lines [][]rune, at Position) (Position, bool) {
	open := false
	for from := at.Column - 1; at.Line <= len(d.lines); at.Line, from = at.Line+1, 0 {
		line := lines[at.Line-1]
		if line == nil {
			line = []rune(d.lines[at.Line-1])
			lines[at.Line-1] = line
		}
		for i := from; i < len(line); i++ {
			switch {
			case line[i] == '"' && open:
				return at, false
			case line[i] == '"':
				open = true
				continue
			case line[i] != '\\' || i+1 == len(line):
				continue
			}
			i++
			digits := map[rune]int{'x': 2, 'u': 4, 'U': 8}[line[i]]
			text := string(line[i+1 : min(i+1+digits, len(line))])
			if n, err := strconv.ParseUint(text, 16, 32); digits > 0 && (err != nil || len(text) < digits || n > utf8.MaxRune) {
				at.Column = i
				return at, true
			}
		}
	}
	return at, false
}

// quoted is text that a parser's message repeats from the file, which may be
// part of a secret.
var quoted = regexp.MustCompile(`"(\\.|[^"\\])*"`)

func position(t *token.Token) *token.Position {
	if t == nil {
		return nil
	}
	return t.Position
}

// place returns where a node starts.
func (d *document) place(n ast.Node) Position {
	at := Position{File: d.file, Line: 1, Column: 1}
	if n == nil {
		return at
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		return d.place(m.Values[0].Key)
	}
	if m, ok := n.(*ast.MappingValueNode); ok {
		return d.place(m.Key)
	}
	if p := position(n.GetToken()); p != nil {
		at.Line, at.Column = p.Line, p.Column
	}
	return at
}

// at returns the position of a path's value, else of its key, else of the nearest path around it.
func (d *document) at(path string) Position {
	for {
		if v, ok := d.values[path]; ok {
			return v.at
		}
		if p, ok := d.keys[path]; ok {
			return p
		}
		if path == "" {
			return Position{File: d.file, Line: 1, Column: 1}
		}
		path = parent(path)
	}
}

// within returns the place of a character inside the value at a path, line and
// column counted from 1, or where the value starts if the file has it spelt in
// another way.
func (d *document) within(path string, line, column int) Position {
	at := d.at(path)
	v := d.values[path]
	if !v.plain || line < 1 || column < 1 {
		return at
	}
	// A value is text in one line, perhaps in quotes, or a block below its sign.
	written := strings.Split(v.raw, "\n")
	if line > len(written) || at.Line > len(d.lines) {
		return at
	}
	source := []rune(d.lines[at.Line-1])
	for _, quote := range []int{0, 1} {
		from := at.Column - 1 + quote
		if line == 1 && from < len(source) && strings.HasPrefix(string(source[from:]), v.raw) {
			at.Column += quote + column - 1
			return at
		}
	}
	if at.Line+line-1 >= len(d.lines) || at.Column > len(source) || source[at.Column-1] != '|' {
		return at
	}
	text := strings.TrimRight(d.lines[at.Line+line-1], "\r")
	if indent, found := strings.CutSuffix(text, written[line-1]); found && strings.TrimSpace(indent) == "" {
		at.Line, at.Column = at.Line+line, len(indent)+column
	}
	return at
}

// fault reports a problem with the value at a path.
func (d *document) fault(path, problem, want string) {
	d.faultAt(d.at(path), path, problem, want)
}

// faultAt is fault with a place of its own. A value has one fault: the first.
func (d *document) faultAt(at Position, path, problem, want string) {
	d.mistake(at, path, mistake{problem: problem, want: want})
}

// mistake is faultAt with either kind of hint.
func (d *document) mistake(at Position, path string, m mistake) {
	if d.bad[path] {
		return
	}
	d.bad[path] = true
	d.add(at, path, d.values[path].raw, m)
}

// faultKey reports a problem with a key, or with the lack of one inside it.
func (d *document) faultKey(path, problem, want string) {
	if !d.bad[path] {
		d.add(d.keyAt(path), path, "", mistake{problem: problem, want: want})
	}
}

// keyAt returns the place of a path's key.
func (d *document) keyAt(path string) Position {
	if at, ok := d.keys[path]; ok {
		return at
	}
	return d.at(path)
}

// add reports a fault. The wanted form never repeats the value.
func (d *document) add(at Position, path, value string, m mistake) {
	d.faults.add(Fault{File: at.File, Line: at.Line, Column: at.Column, Path: path, Value: value,
		Problem: d.hide(path, m.problem, wrongPiece), Want: m.want, Fix: d.hide(path, m.fix, "look at what its references stand for")})
}

const wrongPiece = "is wrong with the values of its references"

var words = regexp.MustCompile(`[\pL\pN_]+`)

// hide shows the references of the value at a path again where a message repeats
// their values. A message that repeats them in another way, or too short to find, becomes
// the text instead.
func (d *document) hide(path, message, instead string) string {
	v := d.values[path]
	if len(v.pieces) == 0 {
		return message
	}
	written := words.FindAllString(v.raw, -1)
	hidden := slices.DeleteFunc(words.FindAllString(v.text, -1), func(word string) bool { return slices.Contains(written, word) })
	repeats := func(message string) bool {
		return slices.ContainsFunc(words.FindAllString(message, -1), func(word string) bool {
			return slices.ContainsFunc(hidden, func(whole string) bool {
				return word == whole || word[0] <= '9' && strings.HasPrefix(whole, word) // the parser of filters cuts off numbers
			})
		})
	}
	if !repeats(message) {
		return message
	}
	var shown, without []string
	for _, p := range slices.SortedFunc(slices.Values(v.pieces), func(a, b piece) int { return len(b.value) - len(a.value) }) {
		if len(p.value) >= 3 {
			shown, without = append(shown, p.value, p.reference), append(without, p.value, " ")
		}
	}
	if repeats(strings.NewReplacer(without...).Replace(message)) {
		return instead
	}
	return strings.NewReplacer(shown...).Replace(message)
}

// has reports whether the file has a key.
func (d *document) has(path string) bool {
	_, ok := d.keys[path]
	return ok
}

// known reports whether the file has a value whose references are resolved, so
// that it can be checked.
func (d *document) known(path string) bool {
	v, ok := d.values[path]
	return ok && !v.unresolved
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// member returns the path of a member.
func member(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + fmt.Sprintf("[%q]", key)
	case path == "":
		return key
	}
	return path + "." + key
}

// element returns the path of an element of a list.
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

var lastStep = regexp.MustCompile(`(^|\.)[A-Za-z0-9_-]+$|\[(\d+|"(\\.|[^"\\])*")\]$`)

// parent returns the path around a path.
func parent(path string) string {
	if at := lastStep.FindStringIndex(path); at != nil {
		return path[:at[0]]
	}
	return ""
}

// relative resolves a path of the file.
func (d *document) relative(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(d.file), path)
}
