package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

// Bounds of a file: its bytes, and how deeply collections may be nested.
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
	// references are the references that decoding resolved, with their values.
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
func (d *document) read() *yaml.Node {
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

// parse parses the text that was read. It returns nil after a fault, and for an empty file.
func (d *document) parse() *yaml.Node {
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
	loader, err := yaml.NewLoader(strings.NewReader(text), yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	var first, second yaml.Node
	if err == nil {
		err = loader.Load(&first)
	}
	if errors.Is(err, io.EOF) {
		d.faults.add(Fault{File: d.file, Problem: "is empty", Want: "a YAML mapping"})
		return nil
	}
	if err == nil {
		err = loader.Load(&second)
	}
	if err == nil {
		d.add(d.place(second.Content[0]), "", "", mistake{problem: "has more than one document", want: "one document per file"})
	} else if !errors.Is(err, io.EOF) {
		d.syntax(err)
		return nil
	}
	return first.Content[0]
}

// syntax reports an error of the parser.
func (d *document) syntax(err error) {
	fault := Fault{File: d.file, Problem: "is not YAML", Want: "a YAML mapping"}
	var at *yaml.LoadError
	if errors.As(err, &at) {
		fault.Line, fault.Column, fault.Problem = at.Mark.Line, at.Mark.Column, "is not YAML: "+at.Message
		switch {
		case at.Stage == yaml.ScannerStage && at.ContextMark.Line > 0: // where an unfinished text begins
			fault.Line, fault.Column, fault.Problem = at.ContextMark.Line, at.ContextMark.Column, fault.Problem+" "+at.ContextMsg
		case at.Stage == yaml.ComposerStage: // the message repeats the text, which may be part of a secret
			fault.Problem, fault.Want = "uses "+aliases+" of YAML, which are not supported", "the value itself"
		}
	}
	d.faults.add(fault)
}

const aliases = "anchors and aliases"

// place returns where a node starts.
func (d *document) place(n *yaml.Node) Position { return Position{d.file, n.Line, n.Column} }

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
