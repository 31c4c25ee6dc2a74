package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/tests/oracle"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// WebhookSecret signs all webhooks of the tests.
var WebhookSecret = "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("banana", 5)))

// Receiver is a customer's endpoint. It checks every signature and keeps what
// it answered 2xx, in order.
type Receiver struct {
	T       testing.TB
	Address string
	Server  *httptest.Server
	Hook    *standardwebhooks.Webhook
	Release chan struct{} // ends hanging requests

	Mu       sync.Mutex
	Answer   func(oracle.Record) int // status; 0 hangs
	Accepted []oracle.Record
	Refused  []oracle.Record
	Arrays   int           // requests with several changes
	News     chan struct{} // capacity 1: something arrived
}

// NewReceiver makes one that listens until the test ends.
func NewReceiver(t testing.TB) *Receiver {
	hook, err := standardwebhooks.NewWebhook(WebhookSecret)
	require.NoError(t, err)
	r := &Receiver{T: t, Address: FreeAddress(t), Hook: hook, Release: make(chan struct{}), News: make(chan struct{}, 1)}
	r.Up()
	t.Cleanup(func() {
		close(r.Release)
		r.Down()
	})
	return r
}

// Up listens, at the same address as before, which stays reserved meanwhile.
func (r *Receiver) Up() {
	l, err := net.Listen("tcp", r.Address)
	require.NoError(r.T, err)
	r.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: r}}
	r.Server.Start()
}

// Down refuses connections.
func (r *Receiver) Down() {
	if r.Server != nil {
		r.Server.CloseClientConnections()
		r.Server.Close()
		r.Server = nil
	}
}

// URL is where webhooks go.
func (r *Receiver) URL() string { return "http://" + r.Address + "/hook" }

// Answers sets the answer from now on; nil accepts.
func (r *Receiver) Answers(f func(oracle.Record) int) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Answer = f
}

// Received are the accepted records, in order.
func (r *Receiver) Received() []oracle.Record {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return append([]oracle.Record(nil), r.Accepted...)
}

// Arrives waits until the newest record of an entity has a state.
func (r *Receiver) Arrives(t testing.TB, entity, state string) {
	t.Helper()
	Eventually(t, entity+" "+state, func() error {
		if s := States(r.Received(), entity); len(s) == 0 || s[len(s)-1] != state {
			return fmt.Errorf("%s has %v", entity, s)
		}
		return nil
	})
}

// Rejected are the records that were not accepted, in order.
func (r *Receiver) Rejected() []oracle.Record {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return append([]oracle.Record(nil), r.Refused...)
}

// ServeHTTP takes one change, or an array of changes, each of which has an answer of its own.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender was killed
	}
	all := make([]oracle.Record, 1)
	var into any = &all[0]
	array := bytes.HasPrefix(body, []byte("["))
	if array {
		into = &all
	}
	if !assert.NoError(r.T, json.Unmarshal(body, into)) || !assert.NoError(r.T, r.Hook.Verify(body, req.Header)) ||
		!array && (!assert.Equal(r.T, all[0].Key, req.Header.Get("Idempotency-Key")) || !assert.Equal(r.T, all[0].Key, req.Header.Get("webhook-id"))) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	type answer struct {
		Key    string `json:"key"`
		Status int    `json:"status"`
	}
	answers := make([]answer, len(all))
	r.Mu.Lock()
	for i, rec := range all {
		answers[i] = answer{rec.Key, http.StatusNoContent}
		if r.Answer != nil {
			answers[i].Status = r.Answer(rec)
		}
		if answers[i].Status/100 == 2 {
			r.Accepted = append(r.Accepted, rec)
		} else {
			r.Refused = append(r.Refused, rec)
		}
	}
	if len(all) > 1 {
		r.Arrays++
	}
	r.Mu.Unlock()
	select {
	case r.News <- struct{}{}:
	default:
	}
	switch {
	case array:
		w.WriteHeader(http.StatusMultiStatus)
		_ = json.NewEncoder(w).Encode(answers) // the sender may be gone
	case answers[0].Status == 0:
		select {
		case <-r.Release:
		case <-req.Context().Done():
		}
	default:
		w.WriteHeader(answers[0].Status)
	}
}
