package clickhouse

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// Thirty services open and write at the same time, over three connections.
func TestServicesOfOneServerShareItsConnections(t *testing.T) {
	const services, most = 30, 3
	dsn, database := servers.ClickHouseHTTP(t)
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: u.Scheme, Host: u.Host})
	var mu sync.Mutex
	now, highest := 0, 0
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		highest = max(highest, now)
		mu.Unlock()
		proxy.ServeHTTP(w, r)
		mu.Lock()
		now--
		mu.Unlock()
	}))
	defer front.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	u.Host = front.Listener.Addr().String()

	var targets sinks.Targets
	var g errgroup.Group
	clients := map[any]bool{}
	for i := range services {
		name := fmt.Sprintf("acme/view_%d@warehouse", i)
		s := newSink(t, Options{URL: u.String(), Table: fmt.Sprintf("%s.t%d", database, i%5), Service: name, Targets: &targets, MaxConnections: most})
		client, err := s.server.Client()
		require.NoError(t, err)
		clients[client] = true
		g.Go(func() error {
			if err := s.Open(t.Context()); err != nil {
				return err
			}
			return s.Write(t.Context(), []change.Change{sinktest.Change(name, "e", change.NewVersion(1, 1), []byte(`{"n":1}`))})
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, clients, 1)
	require.LessOrEqual(t, highest, most)
	other := newSink(t, Options{URL: u.String() + "&max_threads=1", Table: database + ".t", Service: service, Targets: &targets, MaxConnections: most})
	client, err := other.server.Client()
	require.NoError(t, err)
	require.NotContains(t, clients, client)
}
