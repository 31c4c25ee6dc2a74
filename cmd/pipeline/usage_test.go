package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// A mistyped word is answered with the nearest one, a missing argument with its name.
func TestUsageSaysWhatWasMeant(t *testing.T) {
	for line, want := range map[string]string{
		"explian B-007":      "error: unknown command \"explian\" for \"weir\"\nhint: did you mean weir explain?\n",
		"dlq lst":            "error: unknown command \"lst\" for \"weir dlq\"\nhint: did you mean weir dlq list?\n",
		"nothing-like-it":    "error: unknown command \"nothing-like-it\" for \"weir\"\nhint: weir --help shows how\n",
		"run --until-idel":   "error: unknown flag: --until-idel\nhint: did you mean --until-idle?\n",
		"run --nothing-like": "error: unknown flag: --nothing-like\nhint: weir run --help shows how\n",
		"explain":            "error: missing ENTITY\nhint: weir explain --help shows how\n",
		"run extra":          "error: unexpected argument \"extra\": this command takes none\nhint: weir run --help shows how\n",
		"explain a b":        "error: unexpected argument \"b\": this command takes ENTITY\nhint: weir explain --help shows how\n",
		"import x":           "error: required flag(s) \"source\" not set\nhint: weir import --help shows how\n",
		"schema no":          "error: there is no schema \"no\"\nhint: main or customer\n",
		"explain B -c a.yml": "a.yml: cannot be read: no such file or directory; want a readable file\nerror: 1 fault in the configuration\nhint: -c names another file; weir init writes a configuration\n",
	} {
		status, out, errs := call(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, status, line)
		require.Empty(t, out, line)
		require.Equal(t, want, errs, line)
	}
}

// With --json an error is one JSON value, whether or not the flags could be read.
func TestErrorsAsJSON(t *testing.T) {
	for _, line := range []string{"dlq lst --json", "run --until-idel --json", "explain --json"} {
		_, out, errs := call(t, strings.Fields(line)...)
		require.Empty(t, out, line)
		var said struct{ Error, Hint string }
		require.NoError(t, json.Unmarshal([]byte(errs), &said), errs)
		require.NotEmpty(t, said.Error, line)
		require.NotEmpty(t, said.Hint, line)
	}
}

func TestTakes(t *testing.T) {
	for _, c := range []struct{ words, args, want string }{
		{"", "", ""},
		{"A B", "", "missing A and B"},
		{"A B", "x", "missing B"},
		{"A [B]", "x", ""},
		{"A [B]", "x y z", `unexpected argument "z": this command takes A [B]`},
		{"[ID...]", "1 2 3", ""},
		{"[ID...]", "", ""},
		{"ID...", "", "missing ID"},
		{"ID...", "1 2 3", ""},
	} {
		err := matchArgs(strings.Fields(c.words), strings.Fields(c.args))
		if c.want == "" {
			require.NoError(t, err, c)
		} else {
			require.EqualError(t, err, c.want, c)
		}
	}
}

// An id that looks like a flag follows "--".
func TestIDThatLooksLikeAFlag(t *testing.T) {
	status, _, errs := call(t, "explain", "-c", filepath.Join("..", "..", "examples", "banana", "weir.yaml"), "--", "-x")
	require.Equal(t, exitFailed, status, errs)
	require.Contains(t, errs, "nothing has run with this configuration yet")
	require.Contains(t, errs, "hint: weir run -c ")
}

// Color is for people, and not for those who asked for none.
func TestColors(t *testing.T) {
	_, program := openTerminal(t)
	env := map[string]string{"TERM": "xterm"}
	look := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	require.Equal(t, "\x1b[31mno\x1b[0m", colors(program, look).red("no"))
	for _, name := range []string{"NO_COLOR", "TERM"} {
		was := env[name]
		env[name] = "dumb"
		require.Equal(t, "no", colors(program, look).red("no"), name)
		env[name] = was
	}
	require.Equal(t, "no", colors(new(strings.Builder), look).red("no"), "no terminal")

	person, program := openTerminal(t)
	a := &app{console: console{out: program, err: program}, env: look}
	require.Equal(t, exitFailed, a.report(hinted(errors.New("it broke"), "mend it")))
	require.Equal(t, "\x1b[31merror:\x1b[0m it broke\r\n\x1b[36mhint:\x1b[0m mend it\r\n", read(t, person, "mend it\r\n"))
}

// The schemas out of the binary are those that editors get, and schemas.
func TestSchema(t *testing.T) {
	for _, name := range []string{"weir", "customer"} {
		args := []string{"schema"}
		if name != "weir" {
			args = append(args, name)
		}
		status, out, errs := call(t, args...)
		require.Zero(t, status, errs)
		file, err := os.ReadFile(filepath.Join("..", "..", "config", "schema", name+".schema.json"))
		require.NoError(t, err)
		require.Equal(t, string(file), out)
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(out))
		require.NoError(t, err)
		c := jsonschema.NewCompiler()
		require.NoError(t, c.AddResource(name, value))
		_, err = c.Compile(name)
		require.NoError(t, err)
	}
}

func TestVersion(t *testing.T) {
	b := buildOf(&debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-31T12:00:00Z"}, {Key: "vcs.modified", Value: "true"},
	}}, true)
	require.Equal(t, "0.1.0", b.Version)
	require.True(t, strings.HasPrefix(b.String(), "weir 0.1.0 (commit 0123456789ab with changes, go1."), b.String())
	require.Equal(t, "devel", buildOf(nil, false).Version)
	require.Equal(t, "devel", buildOf(&debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, true).Version)

	_, line, _ := call(t, "--version")
	require.Regexp(t, `^weir \S+ \(.*go1.*\)\n$`, line)
}
