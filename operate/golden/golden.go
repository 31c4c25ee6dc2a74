package golden

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Files of a case.
const (
	EventsFile   = "events.jsonl"
	ExpectedFile = "expected.txt"
)

// Result is the result of one case.
type Result struct {
	Name string `json:"name"`
	// Diff is empty when the case is as expected: a unified diff otherwise.
	Diff string `json:"diff,omitempty"`
	// Error says why the case could not be run. It is empty if it ran.
	Error string `json:"error,omitempty"`
	// Updated reports that the expectation was rewritten.
	Updated bool `json:"updated,omitempty"`
	// Took is how long it ran.
	Took time.Duration `json:"-"`
}

// Failed reports whether the case is not as expected or could not be run.
func (r Result) Failed() bool { return r.Diff != "" || r.Error != "" }

// Options of Run. The zero value runs all cases.
type Options struct {
	Pattern *regexp.Regexp // matches names of cases; nil matches all
	// Update stores the result as the expectation. A case with a dead letter that the expectation
	// does not have is not updated, unless Letters is set.
	Update, Letters bool
	Reached         *Coverage // collects the coverage; may be nil
}

// Run runs the cases below dir, in the order of their names. A case that cannot be run is a
// result too. The error says that there are no cases.
func Run(c *config.Config, dir string, o Options) ([]Result, error) {
	pattern, reached := o.Pattern, o.Reached
	plan, err := planOf(c)
	if err != nil {
		return nil, err
	}
	if reached != nil {
		reached.begin(c, plan)
	}
	var names []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
		r, err := runCase(c, plan, filepath.Join(dir, name), o)
		if err != nil {
			r.Error = err.Error()
		}
		r.Name, r.Took = name, time.Since(start)
		results[i] = r
	}
	return results, nil
}

func runCase(c *config.Config, plan *decide.Plan, dir string, o Options) (Result, error) {
	events, err := os.ReadFile(filepath.Join(dir, EventsFile))
	if err != nil {
		return Result{}, err
	}
	got, err := play(c, plan, events, o.Reached)
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
	if o.Update && !o.Letters {
		if letter := newLetter(got, string(want)); letter != "" {
			return Result{}, fmt.Errorf("an event ends as a dead letter, and is not stored as the expectation without --letters: %s", letter)
		}
	}
	if o.Update {
		return Result{Updated: true}, os.WriteFile(path, []byte(got), 0o644)
	}
	return Result{Diff: udiff.Unified("expected", "got", string(want), got)}, nil
}

// letterLine is a line of an outcome that tells of a dead letter.
var letterLine = regexp.MustCompile(`^(\d+ \S+: |  )dead letter `)

// newLetter returns the first dead letter of an outcome that the expectation lacks, or empty.
func newLetter(got, want string) string {
	known := strings.Split(want, "\n")
	for line := range strings.SplitSeq(got, "\n") {
		if letterLine.MatchString(line) && !slices.Contains(known, line) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// keyed is a kind of source whose records have the entity in their key.
type keyed interface {
	// EntityOf returns the key of a document, or empty if it has none.
	EntityOf(row []byte) string
}

// event is one line of a case.
type event struct {
	Source  string            `json:"source"`
	Event   json.RawMessage   `json:"event"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
}

// planOf compiles the configuration with fixed secrets in expressions: results must not depend on
// the environment.
func planOf(c *config.Config) (*decide.Plan, error) {
	numbers := map[string]int32{}
	for i, s := range c.Services() {
		numbers[s.Name] = int32(i + 1)
	}
	tested := *c
	tested.Projections = slices.Clone(c.Projections)
	for i := range tested.Projections {
		p := &tested.Projections[i]
		secrets := map[string]config.Secret{}
		for name := range p.Secrets {
			secrets[name] = config.NewSecret("weir test " + name)
		}
		p.Secrets = secrets
	}
	return assemble.Plan(&tested, numbers, 1)
}

// player plays the events of one case.
type player struct {
	out     strings.Builder
	plan    *decide.Plan
	s       *decide.Simulator
	guards  map[string]*guard // by service
	reached *Coverage         // may be nil
}

// play runs events, one JSON object per line, through the configuration from an empty state and
// returns the outcome of each.
func play(c *config.Config, plan *decide.Plan, events []byte, reached *Coverage) (string, error) {
	shapes, keys := map[string]*ingest.Extractor{}, map[string]keyed{}
	for i := range c.Sources {
		shape, err := assemble.ExtractorOf(c, &c.Sources[i])
		if err != nil {
			return "", err
		}
		shapes[c.Sources[i].Name] = &shape
		if k, ok := c.Sources[i].Input.(keyed); ok {
			keys[c.Sources[i].Name] = k
		}
	}
	p := &player{plan: plan, s: decide.NewSimulator(plan), guards: map[string]*guard{}, reached: reached}
	for _, s := range c.Services() {
		p.guards[s.Name] = newGuard(s.Delivery.Guard)
	}
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
		if k := keys[e.Source]; k != nil && e.Key == "" {
			if e.Key = k.EntityOf(e.Event); e.Key == "" {
				return "", fmt.Errorf("%s:%d: the row has no column of the entity; a deleted row is {\"source\": …, \"event\": null, \"key\": \"its id\"}", EventsFile, line)
			}
		}
		if err := p.event(shape, n, e); err != nil {
			return "", fmt.Errorf("%s:%d: %w", EventsFile, line, err)
		}
	}
	return p.out.String(), nil
}

func (p *player) event(shape *ingest.Extractor, n int, e event) error {
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
		fmt.Fprintf(&p.out, "%d %s: dead letter at ingest, %s: %s\n", n, e.Source, letter.Code, letter.Reason)
		return nil
	}
	if len(records) == 0 {
		fmt.Fprintf(&p.out, "%d %s: skipped, it is about no row\n", n, e.Source)
	}
	for _, record := range records {
		if err := p.apply(record, at, n); err != nil {
			return err
		}
	}
	return nil
}

// apply writes the outcome of one record.
func (p *player) apply(record change.Record, at time.Time, n int) error {
	out := &p.out
	before := p.s.Stored(record.Entity)
	step, err := p.s.Apply(record, at)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d %s %s: %s\n", n, record.Event.Origin.Source, record.Entity, step.Outcome)
	for i := range step.Sent {
		c := &step.Sent[i]
		do, what := "send", "retract"
		if c.Op != change.Retract {
			what = "upsert " + string(c.Doc)
		}
		if g := p.guards[c.Service]; g.holds(c, at) {
			do, what = "hold", what+": "+g.hold.Reason
			p.reached.held(c.Service)
		}
		fmt.Fprintf(out, "  %s %s %s\n", do, c.Service, what)
	}
	why, err := p.unsent(before, p.s.Stored(record.Entity))
	if err != nil {
		return err
	}
	for _, of := range []struct {
		decision string
		services []string
	}{{"held back", step.Held}, {"filtered", step.Filtered}, {"incomplete", step.Incomplete}, {"pruned", step.Pruned}} {
		for _, service := range of.services {
			fmt.Fprintf(out, "  %s %s%s\n", of.decision, service, why[service])
		}
	}
	for _, l := range step.Letters {
		fmt.Fprintf(out, "  dead letter %s, %s: %s\n", cmp.Or(l.Service, "record"), l.Code, l.Reason)
	}
	return p.reached.note(p.s.Stored(record.Entity), &step)
}

// unsent says, by service, which of its rules keep a change of its view back.
func (p *player) unsent(before, after store.Entity) (map[string]string, error) {
	var was, is *decide.Inspection
	why := map[string]string{}
	for _, s := range p.plan.Services {
		projection := p.plan.Projections[s.Projection]
		if projection.Exact() || !before.Found || !after.Found {
			continue
		}
		if was == nil {
			var err error
			if was, err = p.plan.Inspect(before); err != nil {
				return nil, err
			}
			if is, err = p.plan.Inspect(after); err != nil {
				return nil, err
			}
		}
		a, errA := was.View(s.Projection)
		b, errB := is.View(s.Projection)
		if errA != nil || errB != nil || !a.Match || !b.Match {
			continue
		}
		if reason := projection.Unsent(a.Doc, b.Doc); reason != "" {
			why[s.Name] = ": " + reason
		}
	}
	return why, nil
}
