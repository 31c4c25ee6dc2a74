package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/seed-86dfc502/weir/store/sqlite/disk"
)

// hintError is an error that says what to do about it.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

// hinted adds what to do about an error.
func hinted(err error, format string, args ...any) error {
	return &hintError{err, fmt.Sprintf(format, args...)}
}

// report says on standard error how a command failed, as JSON with --json, and
// returns the exit status.
func (a *app) report(err error) int {
	var said *exitError
	if err == nil {
		return exitOK
	} else if errors.As(err, &said) {
		return said.status
	}
	a.printError(err)
	switch {
	case errors.As(err, new(*usageError)):
		return exitUsage
	case errors.As(err, new(*leftError)):
		return exitLeft
	}
	return exitFailed
}

// printError prints an error and its hint. Faults of a configuration are printed without
// decoration, a line each, so that editors can parse them.
func (a *app) printError(err error) {
	text, hint := err.Error(), a.hintOf(err)
	if a.json || slices.Contains(a.args, "--json") { // also where the flags could not be read
		line, _ := json.Marshal(struct {
			Error string `json:"error"`
			Hint  string `json:"hint,omitempty"`
		}{text, hint})
		fmt.Fprintln(a.err, string(line))
		return
	}
	var faults *config.Faults
	if errors.As(err, &faults) {
		fmt.Fprintln(a.err, faults)
		text = english.Plural(len(faults.List), "fault", "faults") + " in the configuration"
	}
	color := colors(a.err, a.env)
	fmt.Fprintln(a.err, color.red("error:"), text)
	if hint != "" {
		fmt.Fprintln(a.err, color.cyan("hint:"), hint)
	}
}

// hintOf returns what to do about an error, or empty if the error suffices.
func (a *app) hintOf(err error) string {
	var with *hintError
	var left *leftError
	var faults *config.Faults
	switch {
	case errors.As(err, &with):
		return with.hint
	case errors.As(err, &left):
		return "the same command resumes it"
	case errors.Is(err, disk.ErrDamaged):
		return "check the disk, then restore a backup of the state file: docs/operator-commands.md, A damaged file"
	case errors.Is(err, disk.ErrSync):
		return "check the disk, then start again: the state is read from the disk"
	case errors.Is(err, session.ErrNothingRan):
		return fmt.Sprintf("weir run -c %s starts it", a.config)
	case errors.Is(err, control.ErrNobody):
		return fmt.Sprintf("weir run -c %s starts one", a.config)
	case errors.As(err, &faults) && len(faults.List) == 1 && faults.List[0].Line == 0 && faults.List[0].File == a.config:
		if _, e := os.Stat(a.config); errors.Is(e, os.ErrNotExist) {
			return "-c names another file; weir init writes a configuration"
		}
	}
	return ""
}

// palette colors words on a terminal, and nowhere else.
type palette bool

// colors returns the palette for w: without colors where it is no
// terminal, or where NO_COLOR or a dumb terminal asks for that.
func colors(w io.Writer, env func(string) (string, bool)) palette {
	if !isTerminal(w) {
		return false
	}
	no, _ := env("NO_COLOR")
	kind, _ := env("TERM")
	return palette(no == "" && kind != "dumb")
}

func (p palette) paint(code, text string) string {
	if !p || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p palette) red(s string) string    { return p.paint("31", s) }
func (p palette) green(s string) string  { return p.paint("32", s) }
func (p palette) yellow(s string) string { return p.paint("33", s) }
func (p palette) cyan(s string) string   { return p.paint("36", s) }
func (p palette) bold(s string) string   { return p.paint("1", s) }

// level colors the word for how something is doing.
func (p palette) level(word string) string {
	switch strings.TrimSpace(word) {
	case "ok":
		return p.green(word)
	case "degraded", "warning":
		return p.yellow(word)
	}
	return p.red(word)
}
