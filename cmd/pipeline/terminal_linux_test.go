package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// openTerminal opens a terminal (pty(7)): person is the end of who types and reads.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = person.Close() })
	ask := func(request uintptr, number *uint32) {
		_, _, e := syscall.Syscall(syscall.SYS_IOCTL, person.Fd(), request, uintptr(unsafe.Pointer(number)))
		require.Zero(t, e)
	}
	var locked, number uint32
	ask(syscall.TIOCSPTLCK, &locked)
	ask(syscall.TIOCGPTN, &number)
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Close() })
	return person, program
}

// read returns the terminal's text, once it matches.
func read(t *testing.T, person *os.File, pattern string) string {
	t.Helper()
	text := ""
	for !regexp.MustCompile(pattern).MatchString(text) {
		b := make([]byte, 4096)
		n, err := person.Read(b)
		require.NoError(t, err, text)
		text += string(b[:n])
	}
	return text
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y": true, "YES": true, "n": false, "": false, "yep": false} {
		person, program := openTerminal(t)
		a := &app{console: console{in: program, err: program}}
		_, err := fmt.Fprintln(person, answer)
		require.NoError(t, err)
		if err := a.confirm(t.Context(), "Reset?"); want {
			require.NoError(t, err, answer)
		} else {
			require.EqualError(t, err, "nothing was done", answer)
		}
	}
}

// An interrupt while a question is open is a no, and does not wait for an answer.
func TestInterruptIsNoAnswer(t *testing.T) {
	person, program := openTerminal(t)
	a := &app{console: console{in: program, err: program}}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.confirm(ctx, "Reset?") }()
	read(t, person, `\[y/N\] `)
	interrupt()
	require.EqualError(t, <-ended, "nothing was done")
	_, err := fmt.Fprintln(person, "y") // lets the read end
	require.NoError(t, err)
}

// The line of progress is gone before a result is on the same terminal.
func TestProgressMakesRoomForResults(t *testing.T) {
	person, program := openTerminal(t)
	a := &app{console: console{out: program, err: program}}
	require.NoError(t, a.withProgress(&operate.Env{}, func(a *app, env *operate.Env) error {
		env.Progress(3, 4)
		fmt.Fprintln(a.out, "result")
		return nil
	}))
	text := read(t, person, "result\r\n")
	require.Regexp(t, `3 of 4 \([0-9,]+/s, \d+s left\)\r\x1b\[Kresult\r\n$`, text)
}

// What takes long shows how far it is on a terminal, and nowhere with --json.
func TestLongWorkShowsProgress(t *testing.T) {
	dir, main := banana(t)
	file, err := os.OpenFile(filepath.Join(dir, "events", "lab.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteString("{broken\n")
	require.NoError(t, err)
	require.NoError(t, file.Close())
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	for _, c := range []struct{ line, want string }{
		{"dlq discard --all --yes -c " + main, `1 of 1 \([0-9,]+/s\)`},
	} {
		person, program := openTerminal(t)
		var out strings.Builder
		a := &app{console: console{in: program, err: program, out: &out}, env: func(string) (string, bool) { return "", false }}
		require.Zero(t, a.execute(t.Context(), strings.Fields(c.line)), c.line)
		_, err := fmt.Fprint(program, "the end")
		require.NoError(t, err)
		require.Regexp(t, c.want, read(t, person, "the end"), c.line)
		require.NotEmpty(t, out.String())
	}
}

// The address of the demo's page is printed once: as the link that signs in.
func TestDemoPrintsOneAddress(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	person, program := openTerminal(t)
	ctx, interrupt := context.WithCancel(t.Context())
	a := &app{console: console{in: program, err: program, out: io.Discard}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() { ended <- a.execute(ctx, []string{"demo", "--entities", "50", "--customers", "2"}) }()
	text := read(t, person, `sign-in\?token=`)
	interrupt()
	go func() { _, _ = io.Copy(io.Discard, person) }()
	require.Zero(t, <-ended)
	require.Equal(t, 1, strings.Count(text, "http://"), text)
}
