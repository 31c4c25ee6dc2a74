// Command report prints the results of `go test -json` as they come, from standard input:
// one line per package, the output of failed tests, and a summary. It keeps the times of
// packages in a file, for the order of the next run.
//
//	go test -json ./... | go run ./tests/report -times .run/test-times
//
// It exits with 1 if a package failed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// event is a line of go test -json, or of the build before it.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// results are those of one run.
type results struct {
	out     io.Writer
	outputs map[[2]string][]string // by package and test; of tests that have not passed
	times   map[string]float64     // by package
	passed  int                    // tests
	failed  []string               // packages
}

func main() {
	times := flag.String("times", "", "file with the time of each package")
	flag.Parse()
	r := &results{out: os.Stdout, outputs: map[[2]string][]string{}, times: readTimes(*times)}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		r.line(in.Bytes())
	}
	r.summary()
	if *times != "" {
		if err := os.WriteFile(*times, []byte(r.order()), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "report:", err)
		}
	}
	if in.Err() != nil || len(r.failed) > 0 {
		os.Exit(1)
	}
}

// line prints the result that a line of the input completes.
func (r *results) line(text []byte) {
	var e event
	if json.Unmarshal(text, &e) != nil {
		fmt.Fprintf(r.out, "%s\n", text) // of the go command itself
		return
	}
	key := [2]string{e.Package, e.Test}
	switch e.Action {
	case "output":
		r.outputs[key] = append(r.outputs[key], e.Output)
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.ended(e)
		} else if e.Action == "fail" {
			fmt.Fprintf(r.out, "FAIL  %s.%s\n%s", e.Package, e.Test, strings.Join(r.outputs[key], ""))
		} else {
			r.passed++
		}
		delete(r.outputs, key)
	}
}

// ended prints the line of a package.
func (r *results) ended(e event) {
	if e.Action == "skip" {
		return // it has no tests
	}
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
		r.failed = append(r.failed, e.Package)
		// A panic or a time-out is the output of no test that ended.
		for key, output := range r.outputs {
			if key[0] == e.Package {
				fmt.Fprint(r.out, strings.Join(output, ""))
				delete(r.outputs, key)
			}
		}
	}
	r.times[e.Package] = e.Elapsed
	fmt.Fprintf(r.out, "%s  %7.1fs  %s\n", word, e.Elapsed, e.Package)
}

func (r *results) summary() {
	fmt.Fprintf(r.out, "\n%d tests and subtests passed, %d packages failed", r.passed, len(r.failed))
	for _, p := range r.failed {
		fmt.Fprintf(r.out, "\n  FAIL  %s", p)
	}
	fmt.Fprintln(r.out)
}

// order returns the packages with their times, the longest first.
func (r *results) order() string {
	packages := make([]string, 0, len(r.times))
	for p := range r.times {
		packages = append(packages, p)
	}
	slices.SortFunc(packages, func(a, b string) int {
		if r.times[a] != r.times[b] {
			return int(1000*r.times[b]) - int(1000*r.times[a])
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, p := range packages {
		fmt.Fprintf(&b, "%.1f %s\n", r.times[p], p)
	}
	return b.String()
}

// readTimes returns the times of the run before; none where it left no file.
func readTimes(file string) map[string]float64 {
	times := map[string]float64{}
	text, _ := os.ReadFile(file) // #nosec G304 -- named by the caller
	for line := range strings.Lines(string(text)) {
		if seconds, p, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			times[p], _ = strconv.ParseFloat(seconds, 64)
		}
	}
	return times
}
