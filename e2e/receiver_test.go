package e2e

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// webhookSecret signs all webhooks of the tests.
var webhookSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("banana", 5)))

// receiver is a customer's endpoint. It checks every signature and keeps what
// it answered 2xx, in order.
type receiver struct {
	t       testing.TB
	address string
	server  *httptest.Server
	hook    *standardwebhooks.Webhook
	release chan struct{} // ends hanging requests

	mu       sync.Mutex
	answer   func(model.Record) int // status; 0 hangs
	accepted []model.Record
	refused  []model.Record
	news     chan struct{} // capacity 1: something arrived
}

func newReceiver(t testing.TB) *receiver {
	hook, err := standardwebhooks.NewWebhook(webhookSecret)
	require.NoError(t, err)
	r := &receiver{t: t, address: "127.0.0.1:0", hook: hook, release: make(chan struct{}), news: make(chan struct{}, 1)}
	r.up()
	t.Cleanup(func() {
		close(r.release)
		r.down()
	})
	return r
}

// up listens, at the same address as before.
func (r *receiver) up() {
	l, err := net.Listen("tcp", r.address)
	require.NoError(r.t, err)
	r.address = l.Addr().String()
	r.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: r}}
	r.server.Start()
}

// down refuses connections.
func (r *receiver) down() {
	if r.server != nil {
		r.server.CloseClientConnections()
		r.server.Close()
		r.server = nil
	}
}

func (r *receiver) url() string { return "http://" + r.address + "/hook" }

// answers sets what is answered from now on; nil accepts.
func (r *receiver) answers(f func(model.Record) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *receiver) received() []model.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]model.Record(nil), r.accepted...)
}

func (r *receiver) rejected() []model.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]model.Record(nil), r.refused...)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender was killed
	}
	var rec model.Record
	if !assert.NoError(r.t, json.Unmarshal(body, &rec)) || !assert.NoError(r.t, r.hook.Verify(body, req.Header)) ||
		!assert.Equal(r.t, rec.Key, req.Header.Get("Idempotency-Key")) || !assert.Equal(r.t, rec.Key, req.Header.Get("webhook-id")) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(rec)
	}
	switch {
	case status/100 == 2:
		r.accepted = append(r.accepted, rec)
	default:
		r.refused = append(r.refused, rec)
	}
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
	if status == 0 {
		select {
		case <-r.release:
		case <-req.Context().Done():
		}
		return
	}
	w.WriteHeader(status)
}
