package webhook

import (
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is an endpoint as the package's documentation asks for: it ignores
// known keys, and, for state, versions that are not higher.
type receiver struct {
	t       testing.TB
	whole   bool // answers arrays with one status, and takes all of one or nothing
	kind    sinks.Kind
	address string
	server  *httptest.Server

	mu      sync.Mutex
	refused bool
	rows    map[string]sinktest.Row
	log     []change.Change
	keys    map[string]bool
}

func newReceiver(t testing.TB, kind sinks.Kind) *receiver {
	r := &receiver{t: t, kind: kind, address: harness.FreeAddress(t), rows: map[string]sinktest.Row{}, keys: map[string]bool{}}
	r.up()
	t.Cleanup(r.down)
	return r
}

// up listens, at the same address as before: no other process gets it meanwhile.
func (r *receiver) up() {
	if r.server != nil {
		return
	}
	l, err := net.Listen("tcp", r.address)
	require.NoError(r.t, err)
	r.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: r}}
	r.server.Start()
}

func (r *receiver) down() {
	if r.server != nil {
		r.server.CloseClientConnections()
		r.server.Close()
		r.server = nil
	}
}

func (r *receiver) set(refused bool) func() {
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refused = refused
	}
}

type record struct {
	Service string          `json:"service"`
	Entity  string          `json:"entity"`
	Op      change.Op       `json:"op"`
	Version change.Version  `json:"version"`
	Key     string          `json:"key"`
	Doc     json.RawMessage `json:"doc"`
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender went away
	}
	var records []record
	array := body[0] == '['
	text := body
	if !array {
		text = slices.Concat([]byte("["), body, []byte("]"))
	}
	err = json.Unmarshal(text, &records)
	if err != nil || len(body) > maxBody && len(records) > 1 || !array && records[0].Key != req.Header.Get("Idempotency-Key") {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	bad := slices.ContainsFunc(records, record.bad)
	switch {
	case r.refused:
		w.WriteHeader(http.StatusForbidden)
		return
	case bad && (!array || r.whole):
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write(body) // an answer that quotes the payload
		return
	}
	var results []map[string]any
	for _, rec := range records {
		if rec.bad() {
			results = append(results, map[string]any{"key": rec.Key, "status": 422, "error": string(rec.Doc)})
			continue
		}
		results = append(results, map[string]any{"key": rec.Key, "status": 200})
		r.take(rec)
	}
	if bad {
		w.WriteHeader(http.StatusMultiStatus)
		slices.Reverse(results) // they have keys
		_ = json.NewEncoder(w).Encode(map[string]any{"results": results})
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// asLog is a sink whose delivery says kind: log.
type asLog struct{ *Sink }

func (l asLog) Traits() sinks.Traits {
	t := l.Sink.Traits()
	t.Kind = sinks.Log
	return t
}

// bad reports whether the receiver refuses the change.
func (rec record) bad() bool {
	var doc struct{ Bad bool }
	_ = json.Unmarshal(rec.Doc, &doc)
	return doc.Bad
}

func (r *receiver) take(rec record) {
	switch {
	case r.kind == sinks.Log && !r.keys[rec.Key]:
		r.keys[rec.Key] = true
		r.log = append(r.log, change.Change{Service: rec.Service, Entity: rec.Entity, Op: rec.Op,
			Version: rec.Version, Key: rec.Key, Doc: rec.Doc})
	case r.kind == sinks.State && rec.Version > r.rows[rec.Entity].Version:
		r.rows[rec.Entity] = sinktest.Row{Version: rec.Version, Op: rec.Op, Doc: rec.Doc}
	}
}

func TestConformance(t *testing.T) {
	for name, of := range map[string]struct {
		kind  sinks.Kind
		batch int
		whole bool
	}{
		"state": {sinks.State, 0, false}, "log": {sinks.Log, 0, false},
		"state, arrays": {sinks.State, 100, false}, "log, arrays": {sinks.Log, 100, false}, "log, arrays as a whole": {sinks.Log, 7, true},
	} {
		t.Run(name, func(t *testing.T) {
			kind := of.kind
			r := newReceiver(t, kind)
			r.whole = of.whole
			sinktest.Run(t, sinktest.Target{
				Kind: kind,
				New: func(t testing.TB) sinks.Sink {
					s := newSink(t, Options{URL: "http://" + r.address + "/hook", Secrets: []string{secret}, BatchMax: of.batch})
					if kind == sinks.Log {
						return asLog{s}
					}
					return s
				},
				State: func(testing.TB) map[string]sinktest.Row {
					r.mu.Lock()
					defer r.mu.Unlock()
					return maps.Clone(r.rows)
				},
				Log: func(testing.TB) []change.Change {
					r.mu.Lock()
					defer r.mu.Unlock()
					return slices.Clone(r.log)
				},
				BadChange: func(c change.Change) change.Change {
					doc := append(c.Doc[:len(c.Doc)-1:len(c.Doc)-1], `,"bad":true}`...)
					return sinktest.Change(c.Service, c.Entity, c.Version, doc)
				},
				Outage: func(testing.TB) (down, up func()) { return r.down, r.up },
				Refuse: func(testing.TB) (refuse, allow func()) { return r.set(true), r.set(false) },
			})
		})
	}
}
