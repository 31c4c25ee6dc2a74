// Command mutants puts small faults into the protocol's code, one at a time, and
// shows for each that a test finds it.
//
// Each fault breaks one rule of tests/protocol/protocol.md, or an assumption of a rule. It is named
// by its function and a pattern of Go tokens, in which _1, _2 and so on match any name:
// moving code between the files of a package, or renaming its variables, leaves it in place.
// Without a function the pattern is a piece of text, of SQL for instance. The
// compiler gets the changed file as an overlay; the working tree stays as it is. A fault
// counts as found when its test fails with it within a minute, and passes without it.
// When the test was renamed, all tests of its package are run.
//
//	make mutants                       # all of them, two at a time
//	MUTANTS='decide/.*second' make mutants # those whose folder, function or rule match
//
// It ends with a table, and with 1 if a fault survives, does not compile or does not match
// exactly one place of the code.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mutant is one fault.
type mutant struct {
	rule string // that it breaks
	in   string // folder of the code, from the repository's root
	fn   string // function or type.method that has the pattern; empty: find is text
	find string // pattern that matches once
	put  string // replaces the match; wildcards are the names that they matched
	test string // that fails with the fault: "TestName", "TestName/subtest", or "./folder TestName"
}

func (m *mutant) name() string { return m.in + "/" + m.fn + ": " + m.rule }

// place is a test.
type place struct{ in, test string }

// place returns the package and the name of the test.
func (m *mutant) place() place {
	if in, test, other := strings.Cut(m.test, " "); other {
		return place{in, test}
	}
	return place{"./" + m.in, m.test}
}

// mutants are all faults.
var mutants = slices.Concat(decideMutants, deliverMutants, storeMutants, diskMutants, transportMutants, edgeMutants, sourceMutants)

// limit is how long a test may take to find a fault.
const limit = time.Minute

// atOnce is how many are built or run at a time.
const atOnce = 2

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Getenv("MUTANTS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// run runs the faults that match a pattern, prints their results and
// reports whether all were found.
func run(ctx context.Context, pattern string) (bool, error) {
	chosen, err := regexp.Compile(pattern)
	if err != nil {
		return false, fmt.Errorf("MUTANTS: %w", err)
	}
	root, err := repository(ctx)
	if err != nil {
		return false, err
	}
	if err := errors.Join(check(root, mutants)...); err != nil {
		return false, err
	}
	todo := slices.DeleteFunc(slices.Clone(mutants), func(m mutant) bool { return !chosen.MatchString(m.name()) })
	if len(todo) == 0 {
		return false, errors.New("MUTANTS: nothing matches")
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	b := bench{root: root, temp: temp}

	sound, err := b.sound(ctx, todo)
	if err != nil {
		return false, err
	}
	results := make([]result, len(todo))
	each(len(todo), func(i int) {
		if ctx.Err() == nil {
			results[i] = b.try(ctx, i, &todo[i], sound[todo[i].place()])
			fmt.Fprintf(os.Stderr, "%3d of %d  %-12s %s\n", i+1, len(todo), results[i].what, todo[i].name())
		}
	})
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return report(os.Stdout, todo, results), nil
}

func repository(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// each calls f for 0 to n-1, atOnce at a time.
func each(n int, f func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// result is the result of a fault.
type result struct {
	what   string
	took   time.Duration // of the test
	output string        // unless the fault was found
}

const (
	found       = "found"
	survives    = "SURVIVES"
	tooSlow     = "TOO SLOW"
	notCompiled = "NO COMPILE"
	unsound     = "UNSOUND" // the test fails, or is not there, without the fault
)

// bench builds and runs tests.
type bench struct{ root, temp string }

// sound runs the tests of faults without the faults, and returns an error text for
// each that fails.
func (b *bench) sound(ctx context.Context, todo []mutant) (map[place]string, error) {
	tests := map[string][]string{}
	for _, m := range todo {
		if p := m.place(); !slices.Contains(tests[p.in], p.test) {
			tests[p.in] = append(tests[p.in], p.test)
		}
	}
	var packages []string
	for in := range tests {
		packages = append(packages, in)
	}
	slices.Sort(packages)
	var mu sync.Mutex
	wrong, failed := map[place]string{}, []error(nil)
	each(len(packages), func(n int) {
		in := packages[n]
		binary := filepath.Join(b.temp, fmt.Sprint("sound", n))
		out, err := b.build(ctx, in, binary)
		for _, test := range tests[in] {
			if err != nil {
				break
			}
			said, _, failure := b.test(ctx, in, binary, test)
			mu.Lock()
			if failure != nil || bytes.Contains(said, []byte("no tests to run")) {
				wrong[place{in, test}] = cmp.Or(strings.TrimSpace(string(said)), "no output")
			}
			mu.Unlock()
		}
		_ = os.Remove(binary)
		if err != nil {
			mu.Lock()
			failed = append(failed, fmt.Errorf("%s: %w\n%s", in, err, out))
			mu.Unlock()
		}
	})
	return wrong, errors.Join(failed...)
}

// try puts a fault in and runs its test.
func (b *bench) try(ctx context.Context, n int, m *mutant, wrong string) result {
	if wrong != "" {
		return result{what: unsound, output: wrong}
	}
	p, name := m.place(), filepath.Join(b.temp, fmt.Sprint(n))
	fault, err := locate(b.root, m)
	if err == nil {
		err = os.WriteFile(name+filepath.Ext(fault.file), fault.text, 0o600)
	}
	if err == nil {
		overlay, _ := json.Marshal(map[string]map[string]string{"Replace": {fault.file: name + filepath.Ext(fault.file)}})
		err = os.WriteFile(name+".json", overlay, 0o600)
	}
	if err != nil {
		return result{what: notCompiled, output: err.Error()}
	}
	defer func() { _ = os.Remove(name) }()
	if out, err := b.build(ctx, p.in, name, "-overlay="+name+".json"); err != nil {
		return result{what: notCompiled, output: string(out)}
	}
	out, took, err := b.test(ctx, p.in, name, p.test)
	switch {
	case err == nil:
		return result{survives, took, ""}
	case bytes.Contains(out, []byte("panic: test timed out")):
		return result{tooSlow, took, ""}
	}
	return result{found, took, ""}
}

func (b *bench) build(ctx context.Context, in, binary string, flags ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-c", "-o", binary}, flags, []string{in})...) // #nosec G204 -- the list is ours
	cmd.Dir = b.root
	return cmd.CombinedOutput()
}

// test runs one test of a binary in the folder of its package, or all tests where there is
// none of that name.
func (b *bench) test(ctx context.Context, in, binary, name string) ([]byte, time.Duration, error) {
	_, sub, _ := strings.Cut(name, "/")
	function := top(name)
	if !declares(filepath.Join(b.root, in), function) {
		function, sub = ".*", ""
	}
	cmd := exec.CommandContext(ctx, binary, "-test.run=^"+function+"$/"+sub, "-test.failfast", "-test.timeout="+limit.String()) // #nosec G204 -- the list is ours
	cmd.Dir = filepath.Join(b.root, in)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	return out, time.Since(start), err
}

// report prints the table and reports whether all faults were found.
func report(w io.Writer, todo []mutant, results []result) bool {
	count := 0
	fmt.Fprintln(w, "| outcome | seconds | code | rule | test |")
	fmt.Fprintln(w, "| --- | ---: | --- | --- | --- |")
	for i, m := range todo {
		r := results[i]
		fmt.Fprintf(w, "| %s | %.1f | %s | %s | %s %s |\n", r.what, r.took.Seconds(), m.in, m.rule, m.place().in, m.place().test)
		if r.what == found {
			count++
		} else if r.output != "" {
			fmt.Fprintf(os.Stderr, "\n%s: %s\n%s\n", r.what, m.name(), r.output)
		}
	}
	fmt.Fprintf(w, "\n%d of %d faults are found.\n", count, len(todo))
	return count == len(todo)
}

// check returns the faults of a list that do not match the code exactly once.
func check(root string, list []mutant) (wrong []error) {
	names := map[string]bool{}
	for i := range list {
		m := &list[i]
		_, err := locate(root, m)
		switch {
		case names[m.name()]:
			err = errors.New("there are two of this name")
		case m.find == m.put:
			err = errors.New("it changes nothing")
		case err != nil:
			err = fmt.Errorf("%w; adapt function or pattern:\n\t%s", err, strings.ReplaceAll(m.find, "\n", "\n\t"))
		}
		names[m.name()] = true
		if err != nil {
			wrong = append(wrong, fmt.Errorf("tests/mutants: %s\n\t%w", m.name(), err))
		}
	}
	return wrong
}

// declares reports whether a folder's tests have a function.
func declares(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go")) // the pattern is well formed
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file) // #nosec G304 -- the list is ours
		return err == nil && bytes.Contains(text, []byte("func "+name+"(t *testing.T)"))
	})
}

// top is the name of the function of a test or subtest.
func top(test string) string {
	name, _, _ := strings.Cut(test, "/")
	return name
}
