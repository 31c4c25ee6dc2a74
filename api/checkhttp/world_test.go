package checkhttp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/checkhttp"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const service = "acme/crm@check"

// tokens admits these tokens.
type tokens map[string]auth.Principal

func (k tokens) Authenticate(r *http.Request) (auth.Principal, error) {
	token, _ := auth.Bearer(r.Header)
	who, ok := k[token]
	if !ok {
		return who, auth.ErrUnauthenticated
	}
	return who, nil
}

var callers = tokens{
	"acme": {ID: "acme-1", Tenant: "acme", Permissions: []auth.Permission{auth.Check}},
	"beta": {ID: "beta-1", Tenant: "beta", Permissions: []auth.Permission{auth.Check}},
	// A caller on a loopback address, without api.tokens.
	"":       {Tenant: auth.DefaultTenant, Permissions: []auth.Permission{auth.Check}, AnyCustomer: true},
	"sender": {ID: "acme-2", Tenant: "acme", Permissions: []auth.Permission{auth.Ingest}, Sources: []string{auth.AllSources}},
}

// maxBody is so small that the server reads the rest of a larger body before it closes the
// connection: a reset could lose the answer.
const maxBody = 128 << 10

// checkStore is the store of the service and the tests.
type checkStore interface {
	store.Store
	store.CheckRows
}

// world is a server with the routes over a store.
type world struct {
	t      *testing.T
	store  checkStore
	broken error // of Find
	rows   store.CheckRows
	url    string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	return worldOn(t, s)
}

// worldOn takes a store over.
func worldOn(t *testing.T, s checkStore) *world {
	t.Helper()
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return &world{t: t, store: s, rows: s}
}

// start serves with the options that were set before.
func (w *world) start() *world {
	w.t.Helper()
	numbers, err := w.store.Services(w.t.Context(), []string{service, "acme/money@check", "beta/crm@check"})
	require.NoError(w.t, err)
	checker := checks.New(checks.Options{Store: w.rows})
	w.t.Cleanup(func() { checker.Close(context.Background()) })
	server := api.New(api.Options{Access: callers, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), MaxBody: 2 * maxBody, Timeout: time.Minute, Rate: 100_000})
	checkhttp.Mount(server, checkhttp.Options{
		Checker: checker, MaxRows: 10, MaxBody: maxBody, MaxEntity: 64, Logger: slog.New(slog.DiscardHandler),
		Find: func(_ context.Context, name string) (checks.Service, error) {
			if w.broken != nil {
				return checks.Service{}, w.broken
			}
			s := checks.Service{Name: name, Number: numbers[name]}
			switch name {
			case "acme/money@check":
				s.Numbers = canonicaltree.Decimal
			case service, "beta/crm@check":
			default:
				return s, checkhttp.ErrNoService
			}
			return s, nil
		},
	})
	listener := httptest.NewServer(server)
	w.t.Cleanup(listener.Close)
	w.url = listener.URL
	return w
}

// answer is what came back.
type answer struct {
	*testing.T
	status int
	header http.Header
	body   string
}

// member returns a member of the body.
func (a answer) member(name string) any {
	a.Helper()
	var all map[string]any
	require.NoError(a, json.Unmarshal([]byte(a.body), &all), a.body)
	return all[name]
}

// version returns the version in the body.
func (a answer) version() string {
	a.Helper()
	decoder := json.NewDecoder(strings.NewReader(a.body))
	var whole map[string]any
	decoder.UseNumber()
	require.NoError(a, decoder.Decode(&whole), a.body)
	v, ok := whole["version"].(json.Number)
	require.True(a, ok, a.body)
	return v.String()
}

// rows returns the rows of a batch.
func (a answer) rows() []map[string]any {
	a.Helper()
	require.Equal(a, http.StatusOK, a.status, a.body)
	var all struct{ Rows []map[string]any }
	require.NoError(a, json.Unmarshal([]byte(a.body), &all), a.body)
	return all.Rows
}

// post sends a request with acme's token; path is behind /v1/services/.
func (w *world) post(path, body string, header ...string) answer {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/v1/services/"+path, bytes.NewReader([]byte(body)))
	require.NoError(w.t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer acme")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(w.t, err)
	http.DefaultClient.CloseIdleConnections()
	return answer{w.t, response.StatusCode, response.Header, string(text)}
}
