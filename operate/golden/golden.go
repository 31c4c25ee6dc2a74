package golden

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/transport"
)

// Files of a case.
const (
	EventsFile   = "events.jsonl"
	ExpectedFile = "expected.txt"
)

// Result is what became of one case.
type Result struct {
	Name string `json:"name"`
	// Diff is empty when the case is as expected: a unified diff otherwise.
	Diff string `json:"diff,omitempty"`
	// Error says why the case could not be run; empty when it was.
	Error string `json:"error,omitempty"`
	// Updated tells that the expectation was written anew.
	Updated bool `json:"updated,omitempty"`
	// Took is how long it ran.
	Took time.Duration `json:"-"`
}

// Failed reports whether the case is not as expected or could not be run.
func (r Result) Failed() bool { return r.Diff != "" || r.Error != "" }

// Run runs the cases below dir whose name matches pattern (nil: all), in the
// order of their names. With update it writes what came out as the
// expectation. A case that cannot be run is a result too; the error says that
// there are none.
func Run(c *config.Config, dir string, pattern *regexp.Regexp, update bool) ([]Result, error) {
	var names []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == EventsFile {
			name, _ := filepath.Rel(dir, filepath.Dir(path))
			if pattern == nil || pattern.MatchString(name) {
				names = append(names, name)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(names) == 0 && pattern != nil {
		return nil, fmt.Errorf("no case in %s has a name that matches %q", dir, pattern)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no case in %s: a case is a folder in it with %s", dir, EventsFile)
	}
	sort.Strings(names)
	results := make([]Result, len(names))
	for i, name := range names {
		start := time.Now()
		r, err := runCase(c, filepath.Join(dir, name), update)
		if err != nil {
			r.Error = err.Error()
		}
		r.Name, r.Took = name, time.Since(start)
		results[i] = r
	}
	return results, nil
}

func runCase(c *config.Config, dir string, update bool) (Result, error) {
	events, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		return Result{}, err
	}
	got, err := Play(c, events)
	if err != nil {
		return Result{}, err
	}
	path := filepath.Join(dir, ExpectedFile)
	want, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Result{}, err
	}
	if string(want) == got {
		return Result{}, nil
	}
	if update {
		return Result{Updated: true}, os.WriteFile(path, []byte(got), 0o644)
	}
	return Result{Diff: udiff.Unified("expected", "got", string(want), got)}, nil
}

// event is one line of a case.
type event struct {
	Source  string            `json:"source"`
	Event   json.RawMessage   `json:"event"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
}

// Play runs events, one JSON object per line, through the configuration from
// an empty state and tells what became of each.
func Play(c *config.Config, events []byte) (string, error) {
	numbers := map[string]int32{}
	for i, s := range c.Services() {
		numbers[s.Name] = int32(i + 1)
	}
	plan, err := assemble.Plan(c, numbers, 1)
	if err != nil {
		return "", err
	}
	shapes := map[string]*ingest.Extractor{}
	for i := range c.Sources {
		shape, err := assemble.ExtractorOf(c, &c.Sources[i])
		if err != nil {
			return "", err
		}
		shapes[c.Sources[i].Name] = &shape
	}
	s := decide.NewSimulator(plan)
	var out strings.Builder
	lines := bufio.NewScanner(bytes.NewReader(events))
	lines.Buffer(nil, len(events)+1)
	for n, line := 0, 1; lines.Scan(); line++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		n++
		var e event
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&e); err != nil {
			return "", fmt.Errorf("%s:%d: %w", EventsFile, line, err)
		}
		shape := shapes[e.Source]
		if shape == nil {
			return "", fmt.Errorf("%s:%d: there is no source %q", EventsFile, line, e.Source)
		}
		if err := play(&out, s, shape, n, e); err != nil {
			return "", fmt.Errorf("%s:%d: %w", EventsFile, line, err)
		}
	}
	return out.String(), nil
}

func play(out *strings.Builder, s *decide.Simulator, shape *ingest.Extractor, n int, e event) error {
	// Times and places are made up, the same at every run.
	at := time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC)
	r := transport.Received{Value: append([]byte{}, e.Event...), Offset: int64(n), Time: at} // empty without one, not null
	for name, value := range e.Headers {
		r.Headers = append(r.Headers, transport.Header{Key: name, Value: []byte(value)})
	}
	if e.Key != "" {
		r.Key = []byte(e.Key)
	}
	if string(e.Event) == "null" {
		r.Value = nil
	}
	records, letter := shape.Extract(transport.NewFrame(e.Source, e.Source, 0, 0, []transport.Received{r}), 0)
	if letter != nil {
		fmt.Fprintf(out, "%d %s: dead letter at ingest, %s: %s\n", n, e.Source, letter.Code, letter.Reason)
		return nil
	}
	if len(records) == 0 {
		fmt.Fprintf(out, "%d %s: skipped, it is about no row\n", n, e.Source)
	}
	for _, record := range records {
		if err := apply(out, s, record, at, n); err != nil {
			return err
		}
	}
	return nil
}

// apply writes what one record leads to.
func apply(out *strings.Builder, s *decide.Simulator, record change.Record, at time.Time, n int) error {
	step, err := s.Apply(record, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s %s: %s\n", n, record.Event.Origin.Source, record.Entity, step.Outcome)
	for _, c := range step.Sent {
		if c.Op == change.Retract {
			fmt.Fprintf(out, "  send %s retract\n", c.Service)
			continue
		}
		fmt.Fprintf(out, "  send %s upsert %s\n", c.Service, c.Doc)
	}
	for _, service := range step.Held {
		fmt.Fprintf(out, "  held back %s\n", service)
	}
	for _, service := range step.Filtered {
		fmt.Fprintf(out, "  filtered %s\n", service)
	}
	for _, service := range step.Incomplete {
		fmt.Fprintf(out, "  incomplete %s\n", service)
	}
	for _, service := range step.Pruned {
		fmt.Fprintf(out, "  pruned %s\n", service)
	}
	for _, l := range step.Letters {
		where := "record"
		if l.Service != "" {
			where = l.Service
		}
		fmt.Fprintf(out, "  dead letter %s, %s: %s\n", where, l.Code, l.Reason)
	}
	return nil
}
