package demo

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/internal/defaults"
)

// Options say how much to make. Zero fields take the defaults.
type Options struct {
	Seed      uint64
	Entities  int // Defaults to 10,000
	Events    int // over all sources. Defaults to 100,000
	Customers int // with one projection each. Defaults to 24
}

// Shares of the stream, in thousandths of all events.
const (
	noiseShare     = 300 // only stripped fields change
	redeliverShare = 30  // an event is repeated unchanged
	lateShare      = 20  // the registry repeats an old event of the entity under a new id
	deleteShare    = 5
)

// memory is how many events back one may be repeated: more than one batch of
// ingest, so that most of them meet a gate that knows them.
const memory = 8192

// Write makes a folder with weir.yaml, customers/ and one JSONL file per
// source. Existing files are overwritten, with the same bytes when the
// options are the same.
func Write(dir string, o Options) error {
	o.Entities = defaults.Positive(o.Entities, 10_000)
	o.Events = defaults.Positive(o.Events, 100_000)
	o.Customers = defaults.Positive(o.Customers, 24)
	if err := os.MkdirAll(filepath.Join(dir, "customers"), 0o755); err != nil {
		return err
	}
	if err := writeConfig(dir, o.Customers); err != nil {
		return err
	}
	var files []io.Closer
	var flushes []*bufio.Writer
	writers := map[string]io.Writer{}
	for _, s := range sourceNames {
		f, err := os.Create(filepath.Join(dir, s+".jsonl"))
		if err != nil {
			return err
		}
		w := bufio.NewWriterSize(f, 1<<20)
		files, flushes, writers[s] = append(files, f), append(flushes, w), w
	}
	err := Stream(o, func(source string, line []byte) error {
		_, err := writers[source].Write(append(line, '\n'))
		return err
	})
	for i := range files {
		err = errors.Join(err, flushes[i].Flush(), files[i].Close())
	}
	return err
}

var sourceNames = []string{"registry", "lab", "market"}

// Stream makes the events one after the other and hands each to emit, which
// may not keep line.
func Stream(o Options, emit func(source string, line []byte) error) error {
	g := &generator{
		r:        rand.New(rand.NewPCG(o.Seed, 0x5745495221)), // #nosec G404 -- the same seed makes the same events
		entities: make([]entity, o.Entities),
		start:    time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	for range o.Events {
		source, line := g.next()
		if err := emit(source, line); err != nil {
			return err
		}
	}
	return nil
}

// entity is the generator's state of one banana, per source.
type entity struct {
	docs [3]map[string]string // field to JSON text; nil for an absent field
	lsn  int                  // of the registry's last event
	old  string               // data of a registry event of some time ago
	olsn int                  // and its lsn
}

type generator struct {
	r        *rand.Rand
	entities []entity
	start    time.Time
	n        int
	recent   [memory]struct {
		source string
		line   []byte
	}
}

// next makes one event.
func (g *generator) next() (source string, line []byte) {
	g.n++
	roll := g.r.IntN(1000)
	if again := g.recent[g.r.IntN(len(g.recent))]; roll < redeliverShare && again.line != nil {
		return again.source, again.line
	}
	// Some entities are busy, most are not.
	i := int(float64(len(g.entities)) * g.r.Float64() * g.r.Float64())
	e := &g.entities[i]
	s := [...]int{0, 0, 0, 0, 0, 1, 1, 1, 2, 2}[g.r.IntN(10)]
	if e.docs[0] == nil {
		s = 0 // the registry is first to know
	}
	source = sourceNames[s]
	switch {
	case roll < redeliverShare+lateShare && e.old != "" && e.olsn < e.lsn:
		source = sourceNames[0]
		line = g.event(i, 0, "upsert", e.old, e.olsn)
	case roll >= redeliverShare+lateShare && roll < redeliverShare+lateShare+deleteShare && e.docs[s] != nil:
		e.docs[s] = nil
		if s == 0 {
			e.lsn++
		}
		line = g.event(i, s, "delete", "", e.lsn)
	default:
		noise := e.docs[s] != nil && roll >= 1000-noiseShare
		changed := g.change(e, s, i, noise)
		if s == 0 {
			e.lsn++
		}
		data := g.object(changed)
		if s == 0 && g.r.IntN(4) == 0 {
			e.old, e.olsn = data, e.lsn
		}
		line = g.event(i, s, "upsert", data, e.lsn)
	}
	g.recent[g.n%len(g.recent)].source = source
	g.recent[g.n%len(g.recent)].line = append([]byte(nil), line...)
	return source, line
}

// change alters the entity's document of source s and returns the data of the event: the
// whole document, or for the lab (a patch) its changed members.
func (g *generator) change(e *entity, s, i int, noise bool) map[string]string {
	patch := map[string]string{}
	set := func(field, value string) {
		e.docs[s][field] = value
		patch[field] = value
	}
	if e.docs[s] == nil {
		e.docs[s] = map[string]string{}
		for _, f := range fields[s] {
			set(f.name, f.value(g.r, i))
		}
	} else if !noise {
		for range 1 + g.r.IntN(2) {
			f := fields[s][g.r.IntN(len(fields[s]))]
			set(f.name, f.value(g.r, i))
		}
	}
	// The stripped fields change with every event.
	set("updated_at", strconv.Quote(g.now().Format(time.RFC3339Nano)))
	set("trace_id", fmt.Sprintf("%q", fmt.Sprintf("%016x", g.r.Uint64())))
	if sourceNames[s] == "lab" {
		return patch
	}
	return e.docs[s]
}

func (g *generator) now() time.Time { return g.start.Add(time.Duration(g.n) * 37 * time.Millisecond) }

// object writes members in an order that is different every time.
func (g *generator) object(members map[string]string) string {
	names := make([]string, 0, len(members))
	for _, s := range fieldNames {
		if _, ok := members[s]; ok {
			names = append(names, s)
		}
	}
	g.r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	var b strings.Builder
	b.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		b.WriteString(members[name])
	}
	b.WriteByte('}')
	return b.String()
}

func (g *generator) event(i, s int, op, data string, lsn int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `{"meta":{"event_id":"%s-%d","op":"%s","banana_id":"%s"`, sourceNames[s], g.n, op, EntityID(i))
	if s == 0 {
		fmt.Fprintf(&b, `,"lsn":%d`, lsn)
	}
	b.WriteByte('}')
	if data != "" {
		b.WriteString(`,"data":` + data)
	}
	b.WriteByte('}')
	return []byte(b.String())
}

// EntityID returns the id of an entity, counted from 0.
func EntityID(i int) string { return fmt.Sprintf("B-%06d", i) }
