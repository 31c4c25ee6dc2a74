package main

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// remedyText is a text of the product that names commands.
type remedyText struct{ where, text string }

// remedyTexts are the texts of the program, its page and its troubleshooting, without the help of commands,
// whose examples have names of their own.
func remedyTexts(t *testing.T) (all []remedyText) {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, folder := range []string{"operate", "pipeline", "cmd", "config", "decide", "deliver", "ingest", "sinks", "sources", "store", "internal/transport"} {
		require.NoError(t, fs.WalkDir(os.DirFS(root), folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, filepath.Join(root, path), nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if pair, ok := n.(*ast.KeyValueExpr); ok {
					key, _ := pair.Key.(*ast.Ident)
					return key == nil || !slices.Contains([]string{"Use", "Short", "Long", "Example"}, key.Name)
				}
				if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					if text, err := strconv.Unquote(literal.Value); err == nil {
						all = append(all, remedyText{set.Position(literal.Pos()).String(), text})
					}
				}
				return true
			})
			return nil
		}))
	}
	templates, err := filepath.Glob(filepath.Join(root, "operate", "page", "templates", "*.html"))
	require.NoError(t, err)
	require.NotEmpty(t, templates)
	for _, name := range templates {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`(?s)<code>\s*(weir .*?)</code>`).FindAllStringSubmatch(string(text), -1) {
			all = append(all, remedyText{name, regexp.MustCompile(`{{.*?}}`).ReplaceAllString(m[1], "%s")})
		}
	}
	const page = "docs/troubleshooting.md"
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("`(weir [^`]+)`").FindAllStringSubmatch(string(text), -1) {
		all = append(all, remedyText{page, m[1]})
	}
	return all
}

// blanks fills the blanks of a text: verbs of fmt, words in capitals, a flag without its value.
type blanks struct{ folder, service, entity string }

func (s blanks) value(flag string, command *cobra.Command) string {
	switch {
	case flag == "-c" || flag == "--config":
		return filepath.Join(s.folder, "weir.yaml")
	case flag == "--stage":
		return "ingest"
	case flag == "--service" || strings.Contains(command.Use, "SERVICE"):
		return s.service
	case strings.Contains(command.Use, "CUSTOMER"):
		return "acme"
	case command.HasParent() && command.Parent().Name() == "import":
		return "5f0c1d2e3a4b5968778695a4b3c2d1e0"
	case strings.Contains(command.Use, "ID") || flag == "--after":
		return "1"
	case flag != "":
		return "x"
	}
	return s.entity
}

var number = regexp.MustCompile(`^\d+$`)

var openWord = regexp.MustCompile(`^%(\[\d\])?[sdvq]$|^[A-Z]+$|^…$`)

// commands returns the command lines that a text names, each up to the word of prose that ends it.
func (s blanks) commands(text string) (lines [][]string) {
	for _, part := range regexp.MustCompile(`(?:^|[^a-z/._-])weir `).Split(text, -1)[1:] {
		words := strings.Fields(part)
		var line []string
		command, flag, ended := newRootCommand(&app{}), "", false
		for _, word := range words {
			bare := strings.TrimRight(word, ").,;:")
			ended = bare != word
			next := slices.IndexFunc(command.Commands(), func(c *cobra.Command) bool { return c.Name() == bare })
			switch {
			case flag == "" && next >= 0:
				command = command.Commands()[next]
			case strings.HasPrefix(bare, "-"):
				flag = ""
				if f := command.Flags().Lookup(strings.TrimLeft(bare, "-")); f != nil && f.NoOptDefVal == "" || bare == "-c" {
					flag = bare
				}
			case openWord.MatchString(bare):
				bare, flag = s.value(flag, command), ""
			case flag != "" || number.MatchString(bare):
				flag = "" // a value as the text has it
			default:
				bare, ended = "", true // prose
			}
			if bare != "" {
				line = append(line, bare)
			}
			if ended {
				break
			}
		}
		if flag != "" {
			line = append(line, s.value(flag, command))
		}
		// A command without arguments is a mention of its name; TestCommandsInText checks those.
		if command.HasParent() && command.Runnable() && len(line) > strings.Count(command.CommandPath(), " ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// Each command that a remedy names runs as it is printed: no text of the program, its page or its
// troubleshooting leaves out a flag or an argument that the command needs.
func TestRemediesRun(t *testing.T) {
	folder, main := banana(t)
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	texts := remedyTexts(t)
	t.Chdir(folder)
	s := blanks{folder, "acme/ripeness@archive", "B-007"}
	seen := map[string]bool{}
	for _, text := range texts {
		for _, line := range s.commands(text.text) {
			if joined := strings.Join(line, " "); !seen[joined] {
				seen[joined] = true
				assert.NotEqual(t, exitUsage, s.run(t, line), "%s: weir %s\n%s", text.where, joined, text.text)
			}
		}
	}
	assert.Greater(t, len(seen), 20, "%v", seen)
	for _, bad := range []string{"then weir dlq replay --service %s", "weir replay --rate 100/s"} {
		lines := s.commands(bad)
		require.Len(t, lines, 1)
		require.Equal(t, exitUsage, s.run(t, lines[0]), bad)
	}
}

// notHere are errors of commands that are complete, and have nothing to work on in this configuration.
var notHere = []string{"there is no such PostgreSQL source", "names no api.tokens", "the guard does not hold", "there is no source", "there is no service", "there is no customer", "no terminal for an editor"}

// run runs a command; one that would work until it is stopped ends when it is idle.
func (blanks) run(t *testing.T, line []string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if line[0] == "run" {
		line = append(slices.Clone(line), "--until-idle")
	}
	if slices.Contains([]string{"init", "demo", "mcp"}, line[0]) {
		line = append(slices.Clone(line), "--help")
	}
	var out, errs log
	a := &app{console: console{out: &out, err: &errs, in: strings.NewReader("{}")}, env: func(string) (string, bool) { return "", false }}
	status := a.main(ctx, line)
	if slices.ContainsFunc(notHere, func(s string) bool { return strings.Contains(errs.String(), s) }) {
		return exitFailed
	}
	if status == exitUsage {
		t.Log(errs.String())
	}
	return status
}
