package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections"
)

func main() {
	rounds := flag.Int("rounds", 15, "rounds that the medians are taken over")
	turn := flag.Duration("turn", 3*time.Millisecond, "how long a contender runs in each round")
	only := flag.String("documents", "", "measure only hashes of documents of this form")
	flag.Parse()
	if err := report(os.Stdout, *only, *rounds, *turn); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is something to be measured, over one document after the other.
type run func(doc []byte) error

// processorTime is the time that the process has used of all processors, for its garbage
// too: what others do on the machine does not count.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // only for a bad argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure returns the median time that each run takes per document.
func measure(runs []run, docs [][]byte, rounds int, turn time.Duration) ([]time.Duration, error) {
	took := make([][]time.Duration, len(runs))
	batches := make([]int, len(runs)) // of all documents, in a turn
	for round := range rounds + 1 {
		for i, f := range runs {
			runtime.GC() // the garbage of one contender is not the next one's to collect
			start := processorTime()
			n := 0
			for ; n < batches[i] || round == 0 && (n == 0 || processorTime()-start < turn); n++ {
				for _, doc := range docs {
					if err := f(doc); err != nil {
						return nil, err
					}
				}
			}
			if batches[i] = n; round > 0 {
				took[i] = append(took[i], (processorTime()-start)/time.Duration(n*len(docs)))
			}
		}
	}
	medians := make([]time.Duration, len(runs))
	for i := range took {
		slices.Sort(took[i])
		medians[i] = took[i][len(took[i])/2]
	}
	return medians, nil
}

func report(w io.Writer, only string, rounds int, turn time.Duration) error {
	if err := reportHashes(w, only, rounds, turn); err != nil || only != "" {
		return err
	}
	fmt.Fprintln(w)
	if err := reportProjections(w, rounds, turn); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return reportIndex(w, rounds, turn)
}

// The places of contenders that the tables speak of by themselves.
const (
	weir = iota
	weirIndex
	sha
	scan
	peers
)

func reportHashes(w io.Writer, only string, rounds int, turn time.Duration) error {
	cs := contenders()
	fmt.Fprintf(w, "| documents | bytes | Weir, MB/s | SHA-256 alone, MB/s | a scan alone, MB/s | of the bound |")
	for _, c := range cs[peers:] {
		fmt.Fprintf(w, " %s |", c.name)
	}
	fmt.Fprintf(w, " %s |\n| --- |%s\n", cs[weirIndex].name, strings.Repeat(" --: |", len(cs)-peers+6))
	for _, shuffled := range []bool{false, true} {
		for _, c := range corpora {
			if only != "" && only != c.name {
				continue
			}
			docs := c.sample(shuffled)
			runs := make([]run, len(cs))
			for i := range cs {
				runs[i] = func(doc []byte) error { _, err := cs[i].run(doc); return err }
			}
			took, err := measure(runs, docs, rounds, turn)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			order := "sorted"
			if shuffled {
				order = "shuffled"
			}
			size := len(bytes.Join(docs, nil)) / len(docs)
			rate := func(i int) float64 { return float64(size) / took[i].Seconds() / 1e6 }
			against := func(t time.Duration) float64 { return float64(t) / float64(took[weir]) }
			fmt.Fprintf(w, "| %s, %s | %d | %.0f | %.0f | %.0f | %.0f %% |", c.name, order, size,
				rate(weir), rate(sha), rate(scan), 100*against(took[sha]+took[scan]))
			for _, t := range append(took[peers:], took[weirIndex]) {
				fmt.Fprintf(w, " %.1f |", against(t))
			}
			fmt.Fprintln(w)
		}
	}
	return nil
}

func reportProjections(w io.Writer, rounds int, turn time.Duration) error {
	ps, err := projectors()
	if err != nil {
		return err
	}
	runs := make([]run, len(ps))
	for i := range ps {
		runs[i] = ps[i].run
	}
	took, err := measure(runs, corpora[1].sample(true), rounds, turn)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "| %d customers × %d fields of an entity | µs | times as fast as gjson + encoding/json |\n| --- | --: | --: |\n", customers, fields)
	for i, p := range ps {
		peer := took[len(took)-2]
		if p.digests {
			peer = took[len(took)-1]
		}
		fmt.Fprintf(w, "| %s | %.1f | %.1f |\n", p.name, float64(took[i].Nanoseconds())/1000, float64(peer)/float64(took[i]))
	}
	return nil
}

// reportIndex measures how the touched projections are found, per pair of
// documents that differ at some paths.
func reportIndex(w io.Writer, rounds int, turn time.Duration) error {
	counts, changes := []int{10, 100, 1000, 10_000}, []int{1, 4, 16}
	fmt.Fprintf(w, "| changed paths |")
	for _, n := range counts {
		fmt.Fprintf(w, " %d projections, µs |", n)
	}
	fmt.Fprintf(w, "\n| --- |%s\n", strings.Repeat(" --: |", len(counts)))
	indexes := make([]*projections.Index, len(counts))
	for i, n := range counts {
		var err error
		if indexes[i], err = crowd(n); err != nil {
			return err
		}
	}
	for _, changed := range changes {
		before, after, err := pairs(changed)
		if err != nil {
			return err
		}
		runs := make([]run, len(indexes))
		for i, index := range indexes {
			var set projections.Set
			was, now := document(index, before), document(index, after)
			runs[i] = func([]byte) error {
				set.Clear()
				canonicaltree.Diff(before, after, func(path canonicaltree.Path, _, _ canonicaltree.Node) bool {
					index.TouchedBy(path, was, now, &set)
					return true
				})
				return nil
			}
		}
		took, err := measure(runs, make([][]byte, documents), rounds, turn)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "| %d |", changed)
		for _, t := range took {
			fmt.Fprintf(w, " %.2f |", float64(t.Nanoseconds())/1000)
		}
		fmt.Fprintln(w)
	}
	return nil
}
