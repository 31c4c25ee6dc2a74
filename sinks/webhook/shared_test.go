package webhook

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// However many services a host has, and however many entities each: no more requests
// at a time than the host may have. An endpoint that hangs leaves half of them.
func TestServicesOfOneHostShareItsConnections(t *testing.T) {
	const services, most = 20, fewestConnections
	var mu sync.Mutex
	now, highest, hanging := 0, 0, 0
	over, full := make(chan struct{}), make(chan struct{})
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		highest = max(highest, now)
		if r.URL.Path == "/hanging" {
			if hanging++; hanging == most/2 {
				close(full)
			}
		}
		mu.Unlock()
		if r.URL.Path == "/hanging" {
			<-over
		}
		mu.Lock()
		now--
		mu.Unlock()
	})
	var targets sinks.Targets
	sink := func(path string) *Sink {
		return newSink(t, Options{URL: url + path, Service: path, Targets: &targets, Concurrency: most / 2})
	}
	changes := make([]change.Change, most/2)
	for i := range changes {
		changes[i] = upsert(fmt.Sprint("e", i), 1)
	}
	var others []*Sink
	for i := range services {
		others = append(others, sink(fmt.Sprintf("/%d", i)))
	}
	slow := sink("/hanging")
	stuck := make(chan error)
	go func() { stuck <- slow.Write(t.Context(), changes) }()
	<-full
	var g errgroup.Group
	for _, s := range others {
		g.Go(func() error { return s.Write(t.Context(), changes) })
	}
	require.NoError(t, g.Wait())
	close(over)
	require.NoError(t, <-stuck)
	require.LessOrEqual(t, highest, most)
}

// Any answer is about the change that was sent. Only a host that takes no connection stops its
// other services.
func TestUnreachable(t *testing.T) {
	for _, status := range []int{302, 401, 408, 422, 425, 429, 500, 502, 503, 504} {
		require.False(t, statusFailure(status, 0, "").err.Unreachable, status)
	}
	for _, o := range []struct {
		options Options
		want    bool
	}{
		{Options{URL: "http://" + closed}, true},
		{Options{URL: "http://nowhere.invalid/"}, true},
		{Options{URL: "http://" + closed, DenyPrivate: true}, false},
	} {
		err := newSink(t, o.options).Write(t.Context(), []change.Change{upsert("a", 1)})
		require.Equal(t, o.want, sinks.Classify(err).Unreachable, "%v", err)
		require.False(t, sinks.Classify(err).Ambiguous)
	}
}

func TestOtherCredentialsAreAnotherTarget(t *testing.T) {
	var targets sinks.Targets
	clients := map[*http.Transport]bool{}
	for _, o := range []Options{
		{URL: "https://a.example/one"},
		{URL: "https://A.example/two?x=y", Secrets: []string{secret}, Timeout: time.Second},
		{URL: "https://user:password@a.example/one"},
		{URL: "https://a.example/one", Headers: map[string]string{"Authorization": "Bearer one"}},
		{URL: "https://a.example/one", Headers: map[string]string{"Authorization": "Bearer other"}},
		{URL: "https://a.example/one", DenyPrivate: true},
		{URL: "https://a.example/one", TLSIdentity: "one"},
		{URL: "https://a.example:444/one"},
		{URL: "http://a.example/one"},
	} {
		o.Targets = &targets
		client, err := newSink(t, o).server.Client()
		require.NoError(t, err)
		clients[client] = true
	}
	require.Len(t, clients, 8, "the first two are one")
}
