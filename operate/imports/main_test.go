package imports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const tenant = "acme"

const maxRow = 100_000 // bytes

// world is a real store, and an inbox that keeps the first record of each claim,
// as decide does.
type world struct {
	*testing.T
	store  *sqlite.Store
	desk   *Desk
	active error // returned by the desk's Ready

	mu      sync.Mutex
	records int               // guarded by mu: all that were appended
	claims  map[string]bool   // guarded by mu
	effects []string          // guarded by mu: payloads, one per claim, in order
	appends func(n int) error // before an append; nil works
	after   func(n int) error // after an append
}

func newWorld(t *testing.T) *world {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	w := &world{T: t, store: s, claims: map[string]bool{}}
	rules, err := stripper.Compile(nil)
	require.NoError(t, err)
	source := &events.Source{Name: "lab", Extractor: ingest.Extractor{
		Source: "lab", Entity: ingest.Locator{Path: "id"}, EventID: ingest.Locator{Path: "event"},
		IsDelete: func(string) bool { return false }, Strip: rules, MaxEvent: 1 << 20, MaxEntity: 100,
	}, Push: &Inbox{Topic: "weir.inbox", Append: w.Append}}
	w.desk = &Desk{Store: s, Events: w.handler(s), Source: source, Ready: func(context.Context) error { return w.active }}
	return w
}

// handler makes a handler of events over a ledger.
func (w *world) handler(ledger store.Ledger) *events.Handler {
	return events.New(events.Options{Ledger: ledger, Keep: time.Hour, Metrics: events.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
}

// Append is the inbox.
func (w *world) Append(_ context.Context, records []transport.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.appends != nil {
		if err := w.appends(len(records)); err != nil {
			return err
		}
	}
	for _, r := range records {
		got, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		if err != nil {
			return err
		}
		claim := got.Event.Claim
		if claim == "" || r.Topic != "weir.inbox" {
			return errors.New("a wrong record")
		}
		w.records++
		if !w.claims[claim] {
			w.claims[claim] = true
			w.effects = append(w.effects, string(got.Event.Payload))
		}
	}
	if w.after != nil {
		return w.after(len(records))
	}
	return nil
}

// lab describes a file.
func lab(f Format, o Options, text string) File {
	return File{Tenant: tenant, Source: "lab", Format: f, Options: o, SHA256: sha256.Sum256([]byte(text)), Name: "lab", Actor: "me", MaxRow: maxRow}
}

// run imports a file.
func (w *world) run(f Format, o Options, text string) (Import, error) {
	return Run(w.Context(), lab(f, o, text), strings.NewReader(text), w.desk.Ingest)
}

// file imports a file to its end.
func (w *world) file(f Format, o Options, text string) Import {
	w.Helper()
	i, err := w.run(f, o, text)
	require.NoError(w, err)
	require.Equal(w, Done, i.State)
	require.Equal(w, i.Position, w.found(i).Position)
	return i
}

// found reads an import.
func (w *world) found(i Import) Import {
	w.Helper()
	got, err := Find(w.Context(), w.store, tenant, i.ID)
	require.NoError(w, err)
	return got
}

// errorsOf returns the error file as lines.
func (w *world) errorsOf(i Import, f Format) []string {
	w.Helper()
	var b strings.Builder
	require.NoError(w, WriteErrors(w.Context(), w.store, i.ID, f, &b))
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

// perBatch is how many rows of many make a batch.
const perBatch = 16

// pad makes a row so large that perBatch of them are a batch.
var pad = strings.Repeat("x", batchBytes/perBatch)

// many makes a file of n large events about n/10 entities.
func many(n int) (file string, payloads []string) {
	var b strings.Builder
	for k := range n {
		p := fmt.Sprintf(`{"id":"e-%d","event":"%d","n":%d,"pad":%q}`, k%max(1, n/10), k, k, pad)
		payloads = append(payloads, p)
		b.WriteString(p + "\n")
	}
	return b.String(), payloads
}
