package sinktest

import (
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// Row is an entity in a state sink's target.
type Row struct {
	Version change.Version
	Op      change.Op
	Doc     []byte // JSON; compared as a JSON value, so spacing and member order are free
}

// Target is one target of a sink and the view on it from outside. Its functions
// are called from one goroutine at a time and fail t when they cannot answer.
type Target struct {
	// Kind is the kind that the sinks' traits must say.
	Kind sinks.Kind

	// New returns a sink on this target, not yet open. It is called many times,
	// always for the same target; the former sink is closed before the next is
	// opened.
	New func(t testing.TB) sinks.Sink

	// State reads the whole target (State sinks). A retracted entity is absent
	// or has Op Retract.
	State func(t testing.TB) map[string]Row

	// Log reads the whole target in the order of effect (Log sinks). Key,
	// Version, Entity, Op and Doc are compared. A target that promises at least
	// once reads as its consumers do: the first of each key.
	Log func(t testing.TB) []change.Change

	// Busy says that the target's server has other work and may say "not now" to
	// any Write. What must succeed, or be refused, is then sent again after a
	// failure of class Retry, as deliver does.
	Busy bool

	// Service is the service of all changes. Defaults to acme/ripeness@target.
	Service string

	// Doc makes a document with one whole number and one text in it, for sinks
	// that need certain fields. Defaults to {"n":…,"text":…}.
	Doc func(n int, text string) []byte

	// BadChange makes of a good change one that the target refuses by itself, as it
	// is. Without it the subtests about single bad changes are left out.
	BadChange func(good change.Change) change.Change

	// Outage returns the two switches of the target's server. Both return when
	// the server is gone, or back. Without it the subtests about outages are left out.
	Outage func(t testing.TB) (down, up func())

	// Refuse returns the two switches of a refusal of the service as a whole
	// (credentials taken away, the table gone). Without it the subtest about it is left out.
	Refuse func(t testing.TB) (refuse, allow func())
}

func (tg *Target) service() string {
	if tg.Service == "" {
		return "acme/ripeness@target"
	}
	return tg.Service
}

func (tg *Target) doc(n int, text string) []byte {
	if tg.Doc != nil {
		return tg.Doc(n, text)
	}
	doc, err := json.Marshal(struct {
		N    int    `json:"n"`
		Text string `json:"text"`
	}{n, text})
	if err != nil {
		panic(err) // an int and a string always marshal
	}
	return doc
}

// Change makes a complete change with the key that belongs to it: an upsert of
// doc, or a retraction when doc is nil.
func Change(service, entity string, v change.Version, doc []byte) change.Change {
	c := change.Change{
		Service:  service,
		Entity:   entity,
		Op:       change.Retract,
		Version:  v,
		Content:  change.Retracted(),
		Revision: 1,
		Time:     time.UnixMilli(1_700_000_000_000 + v.Offset()).UTC(),
	}
	if doc != nil {
		c.Op, c.Doc = change.Upsert, doc
		c.Content = change.Hashed(1, sha256.Sum256(doc))
	}
	c.Key = change.Key(service, entity, v, c.Content)
	return c
}

// Changes returns makers of a service's changes at offsets: an upsert with a document of the
// suite's form, a retraction, and upserts of n entities from an offset on.
func Changes(service string) (
	upsert func(entity string, offset int64, text string) change.Change,
	retract func(entity string, offset int64) change.Change,
	batch func(n int, offset int64) []change.Change,
) {
	upsert = func(entity string, offset int64, text string) change.Change {
		doc, err := json.Marshal(map[string]any{"n": offset, "text": text})
		if err != nil {
			panic(err)
		}
		return Change(service, entity, change.NewVersion(1, offset), doc)
	}
	retract = func(entity string, offset int64) change.Change {
		return Change(service, entity, change.NewVersion(1, offset), nil)
	}
	batch = func(n int, offset int64) []change.Change {
		changes := make([]change.Change, n)
		for i := range changes {
			changes[i] = upsert("entity-"+strconv.Itoa(i), offset+int64(i), "some text of a usual length, as a document has")
		}
		return changes
	}
	return upsert, retract, batch
}
