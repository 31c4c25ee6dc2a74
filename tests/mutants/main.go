// Command mutants puts small faults into the protocol's code, one at a time, and
// shows for each that a test finds it.
//
// Each fault breaks one rule of docs/protocol.md, or what a rule stands on. The
// compiler gets the changed file as an overlay: the working tree is never written
// to. A fault counts as found when the test that the list names fails with it
// within a minute, and passes without it.
//
//	make mutants                       # all of them, two at a time
//	MUTANTS='decide/.*second' make mutants # those whose file or rule match
//
// It ends with a table, and with 1 if a fault survives, does not compile or is not
// found in the code exactly once.
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
	file string // from the repository's root
	old  string // stands in file exactly once
	new  string
	in   string // package of the test, "./decide"
	test string // that fails with the fault: TestName, or TestName/subtest
}

func (m *mutant) name() string { return m.file + ": " + m.rule }

// mutants are all faults.
var mutants = slices.Concat(decideMutants, deliverMutants, storeMutants, diskMutants, transportMutants, edgeMutants)

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

// run runs the faults that match a pattern, prints what became of them and
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
			results[i] = b.try(ctx, i, &todo[i], sound[place{todo[i].in, todo[i].test}])
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

// result is what became of a fault.
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

// place is a test.
type place struct{ in, test string }

// sound runs the tests of faults without the faults, and returns what is wrong with
// each: nothing if it is there and passes.
func (b *bench) sound(ctx context.Context, todo []mutant) (map[place]string, error) {
	tests := map[string][]string{}
	for _, m := range todo {
		if !slices.Contains(tests[m.in], m.test) {
			tests[m.in] = append(tests[m.in], m.test)
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
	name := filepath.Join(b.temp, fmt.Sprint(n))
	path := filepath.Join(b.root, m.file)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(name+".go", bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o600)
	}
	if err == nil {
		overlay, _ := json.Marshal(map[string]map[string]string{"Replace": {path: name + ".go"}})
		err = os.WriteFile(name+".json", overlay, 0o600)
	}
	if err != nil {
		return result{what: notCompiled, output: err.Error()}
	}
	defer func() { _ = os.Remove(name) }()
	if out, err := b.build(ctx, m.in, name, "-overlay="+name+".json"); err != nil {
		return result{what: notCompiled, output: string(out)}
	}
	out, took, err := b.test(ctx, m.in, name, m.test)
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

// test runs one test of a binary where its package is.
func (b *bench) test(ctx context.Context, in, binary, name string) ([]byte, time.Duration, error) {
	top, sub, _ := strings.Cut(name, "/")
	cmd := exec.CommandContext(ctx, binary, "-test.run=^"+top+"$/"+sub, "-test.timeout="+limit.String()) // #nosec G204 -- the list is ours
	cmd.Dir = filepath.Join(b.root, in)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	return out, time.Since(start), err
}

// report prints the table and reports whether all faults were found.
func report(w io.Writer, todo []mutant, results []result) bool {
	count := 0
	fmt.Fprintln(w, "| outcome | seconds | file | rule | test |")
	fmt.Fprintln(w, "| --- | ---: | --- | --- | --- |")
	for i, m := range todo {
		r := results[i]
		fmt.Fprintf(w, "| %s | %.1f | %s | %s | %s %s |\n", r.what, r.took.Seconds(), m.file, m.rule, m.in, m.test)
		if r.what == found {
			count++
		} else if r.output != "" {
			fmt.Fprintf(os.Stderr, "\n%s: %s\n%s\n", r.what, m.name(), r.output)
		}
	}
	fmt.Fprintf(w, "\n%d of %d faults are found.\n", count, len(todo))
	return count == len(todo)
}

// check says what of a list does not fit the code: a snippet that is not there
// exactly once, a test that does not exist.
func check(root string, list []mutant) (faults []error) {
	names := map[string]bool{}
	for _, m := range list {
		wrong := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("tests/mutants: %s\n\t%s", m.name(), fmt.Sprintf(format, args...)))
		}
		if names[m.name()] {
			wrong("there are two of this name")
		}
		names[m.name()] = true
		if m.old == m.new {
			wrong("it changes nothing")
		}
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			wrong("the file is gone: name the one where its code is now")
		} else if n := bytes.Count(text, []byte(m.old)); n != 1 {
			wrong("the snippet stands in the file %d times, not once: adapt it to what the code is now\n\t%s", n, strings.ReplaceAll(m.old, "\n", "\n\t"))
		}
		top, _, _ := strings.Cut(m.test, "/")
		if !declares(filepath.Join(root, m.in), top) {
			wrong("%s has no test %s", m.in, top)
		}
	}
	return faults
}

// declares reports whether a folder's tests have a function.
func declares(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go")) // the pattern is well formed
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && bytes.Contains(text, []byte("func "+name+"(t *testing.T)"))
	})
}
