package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// edit is a fault at its place in the code.
type edit struct {
	file string
	text []byte // of the file with the fault
}

var (
	errNoMatch = errors.New("nothing in the code matches")
	wildcard   = regexp.MustCompile(`^_\d+$`)
)

// locate finds the place of a fault in the tree at root. A function that is gone is no
// error while one function of the package matches, nor is another file.
func locate(root string, m *mutant) (edit, error) {
	files, err := sourceFiles(filepath.Join(root, m.in))
	if err != nil {
		return edit{}, err
	}
	var found []edit
	if m.fn == "" {
		found = textMatches(files, m)
	} else {
		named, other, gone := tokenMatches(files, m)
		if found = named; gone {
			found = other
		}
	}
	switch len(found) {
	case 0:
		return edit{}, errNoMatch
	case 1:
		return found[0], nil
	}
	return edit{}, fmt.Errorf("%d places match", len(found))
}

// sourceFiles returns the code and the migrations of a folder, without tests. Other SQL is in
// generated code.
func sourceFiles(folder string) (map[string][]byte, error) {
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return nil, err
	}
	more, err := filepath.Glob(filepath.Join(folder, "*", "*.sql"))
	files := map[string][]byte{}
	for _, name := range slices.Concat(names, more) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, e := os.ReadFile(name) // #nosec G304 -- the list is ours
		files[name], err = text, errors.Join(err, e)
	}
	return files, err
}

// textMatches finds a text, in which any white space matches any.
func textMatches(files map[string][]byte, m *mutant) (found []edit) {
	words := strings.Fields(m.find)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	pattern := regexp.MustCompile(strings.Join(words, `\s+`))
	for name, text := range files {
		for _, at := range pattern.FindAllIndex(text, -1) {
			found = append(found, edit{name, splice(text, at[0], at[1], strings.TrimSpace(m.put))})
		}
	}
	return found
}

// tokenMatches finds a pattern of tokens in the function that the fault names, which may be
// gone, and in the other functions of the package.
func tokenMatches(files map[string][]byte, m *mutant) (named, other []edit, gone bool) {
	pattern := scan([]byte(m.find))
	gone = true
	for name, text := range files {
		if filepath.Ext(name) != ".go" {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			continue // the compiler says it better
		}
		tokens := scan(text)
		for _, d := range file.Decls {
			from, to := set.Position(d.Pos()).Offset, set.Position(d.End()).Offset
			gone = gone && nameOf(d) != m.fn
			for _, match := range matches(tokens, pattern, from, to) {
				e := edit{name, splice(text, match.from, match.to, match.fill(m.put))}
				if nameOf(d) == m.fn {
					named = append(named, e)
				} else {
					other = append(other, e)
				}
			}
		}
	}
	return named, other, gone
}

// nameOf returns "function" or "type.method"; "" for another declaration.
func nameOf(d ast.Decl) string {
	f, ok := d.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

func splice(text []byte, from, to int, put string) []byte {
	return slices.Concat(text[:from], []byte(put), text[to:])
}

// lexeme is a token of Go; text of a semicolon is ";", also at the end of a line.
type lexeme struct {
	from, to int
	text     string
	name     bool
}

// scan returns the tokens of a text without its comments. The semicolon that Go inserts
// at the end of a text without a last line break is none.
func scan(text []byte) (all []lexeme) {
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, func(token.Position, string) {}, 0)
	for {
		pos, tok, literal := s.Scan()
		at := file.Offset(pos)
		switch {
		case tok == token.EOF:
			return all
		case tok == token.SEMICOLON && literal == "\n" && at >= len(text):
			continue
		case tok == token.SEMICOLON:
			all = append(all, lexeme{at, at + len(literal), ";", false})
			continue
		case literal == "":
			literal = tok.String()
		}
		all = append(all, lexeme{at, at + len(literal), literal, tok == token.IDENT})
	}
}

// match is a place where a pattern matches.
type match struct {
	from, to int
	bound    map[string]string // by wildcard
}

// matches returns where a pattern matches between two offsets.
func matches(tokens, pattern []lexeme, from, to int) (all []match) {
	for i, first := range tokens {
		if first.from < from || i+len(pattern) > len(tokens) || tokens[i+len(pattern)-1].to > to {
			continue
		}
		m := match{first.from, tokens[i+len(pattern)-1].to, map[string]string{}}
		if m.binds(tokens[i:], pattern) {
			all = append(all, m)
		}
	}
	return all
}

// binds reports whether tokens begin as a pattern says. A wildcard is one name, everywhere
// the same, and no two wildcards are the same name.
func (m match) binds(tokens, pattern []lexeme) bool {
	taken := map[string]bool{}
	for j, p := range pattern {
		t := tokens[j]
		if !p.name || !wildcard.MatchString(p.text) {
			if t.text != p.text {
				return false
			}
			continue
		}
		if bound, known := m.bound[p.text]; known && bound != t.text || !t.name || !known && taken[t.text] {
			return false
		}
		m.bound[p.text], taken[t.text] = t.text, true
	}
	return true
}

var placeholder = regexp.MustCompile(`\b_\d+\b`)

// fill returns a text with the names that the wildcards matched.
func (m match) fill(text string) string {
	return string(placeholder.ReplaceAllFunc([]byte(text), func(w []byte) []byte {
		if name, known := m.bound[string(w)]; known {
			return []byte(name)
		}
		return bytes.Clone(w)
	}))
}
