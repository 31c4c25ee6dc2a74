package sources_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

const token = "0123456789abcdef"

type push struct {
	t        *testing.T
	source   *sources.Push
	server   *httptest.Server
	messages <-chan *message.Message
}

func newPush(t *testing.T, o sources.PushOptions) *push {
	o.Name = "orders"
	p := &push{t: t, source: sources.NewPush(o)}
	p.server = httptest.NewServer(p.source)
	p.server.Config.SetKeepAlivesEnabled(false)
	t.Cleanup(func() {
		require.NoError(t, p.source.Close())
		p.server.Close()
	})
	return p
}

func (p *push) subscribe() {
	var err error
	p.messages, err = p.source.Subscribe(context.Background(), "push")
	require.NoError(p.t, err)
}

type answer struct {
	status int
	body   string
	header http.Header
}

func (p *push) post(kind, body string) <-chan answer {
	return p.request(http.MethodPost, kind, token, body)
}

func (p *push) request(method, kind, token, body string) <-chan answer {
	result := make(chan answer, 1)
	req, err := http.NewRequest(method, p.server.URL, strings.NewReader(body))
	require.NoError(p.t, err)
	req.Header.Set("Content-Type", kind)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	go func() {
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			result <- answer{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		result <- answer{resp.StatusCode, string(b), resp.Header}
	}()
	return result
}

func (p *push) next() *message.Message {
	p.t.Helper()
	select {
	case m := <-p.messages:
		return m
	case <-time.After(20 * time.Second):
		require.FailNow(p.t, "no message")
		return nil
	}
}

func seqOf(m *message.Message) uint64 {
	p, _ := transport.PositionOf(m.Context())
	return p.Seq
}

func TestPushAnswersWhenTheEventsAreDurable(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token})
	early := p.post("application/json", `{"n":0}`) // before anybody subscribed
	p.subscribe()
	p.next().Ack()
	require.Equal(t, 202, (<-early).status)

	result := p.post("application/x-ndjson; charset=utf-8", "{\"n\":1}\n\n  \n{\"n\":2}\r\n{\"n\":3}")
	one, two, three := p.next(), p.next(), p.next()
	require.Equal(t, []uint64{1, 2, 3}, []uint64{seqOf(one), seqOf(two), seqOf(three)})
	require.Equal(t, `{"n":3}`, string(three.Payload))
	three.Ack()
	one.Ack()
	require.False(t, p.source.Drained())
	select {
	case a := <-result:
		require.FailNow(t, "answered too early", a.body)
	case <-time.After(20 * time.Millisecond):
	}
	two.Nack() // it could not be taken in yet: it comes again
	again := p.next()
	require.EqualValues(t, 2, seqOf(again))
	again.Ack()
	a := <-result
	require.Equal(t, 202, a.status)
	require.JSONEq(t, `{"accepted":3}`, a.body)
	require.Eventually(t, p.source.Drained, 20*time.Second, time.Millisecond)
}

func TestPushRefuses(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token, MaxBody: 100})
	p.subscribe()
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		method, kind, token, body string
		status                    int
		header                    string
	}{
		{"GET", "application/json", token, "", 405, "Allow"},
		{"PUT", "application/json", token, "{}", 405, "Allow"},
		{"POST", "application/json", "", "{}", 401, "Www-Authenticate"},
		{"POST", "application/json", token + "x", "{}", 401, "Www-Authenticate"},
		{"POST", "application/json", "0123456789abcdeg", long, 401, "Www-Authenticate"},
		{"POST", "text/plain", token, "{}", 415, ""},
		{"POST", "", token, "{}", 415, ""},
		{"POST", "application/json", token, long, 413, ""},
		{"POST", "application/json", token, "", 400, ""},
		{"POST", "application/x-ndjson", token, "\n \n", 400, ""},
	} {
		a := <-p.request(c.method, c.kind, c.token, c.body)
		require.Equal(t, c.status, a.status, "%+v", c)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.NotContains(t, a.body, "xxx")
		if c.header != "" {
			require.NotEmpty(t, a.header.Get(c.header), "%+v", c)
		}
	}
	require.True(t, p.source.Drained())
}

func TestPushTimeout(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token, Timeout: 20 * time.Millisecond})
	require.Equal(t, 503, (<-p.post("application/json", "{}")).status, "nobody subscribed")
	p.subscribe()
	result := p.post("application/json", "{}")
	m := p.next()
	require.Equal(t, 503, (<-result).status)
	// The event goes on all the same: a gap would hold back what follows.
	m.Ack()
	require.Eventually(t, p.source.Drained, 20*time.Second, time.Millisecond)
}

// While nothing is acknowledged, requests that are sent again and again pile up
// as far as the window only.
func TestPushBoundsWhatIsInFlight(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token, Timeout: 100 * time.Millisecond, WindowBytes: 10 << 10})
	p.subscribe()
	result := p.post("application/x-ndjson", "{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n")
	one, two := p.next(), p.next() // 4 KiB and a little each
	a := <-result
	require.Equal(t, 503, a.status)
	require.Contains(t, a.body, "too many events")
	require.Equal(t, 503, (<-p.post("application/json", `{"n":1}`)).status)
	require.Empty(t, p.messages)
	one.Ack()
	two.Ack()
	require.Eventually(t, p.source.Drained, 20*time.Second, time.Millisecond)
	large := p.post("application/json", `{"large":"`+strings.Repeat("x", 20<<10)+`"}`)
	three := p.next() // larger than the window: alone
	require.EqualValues(t, 2, seqOf(three), "what was not handed out left no gap")
	three.Ack()
	require.Equal(t, 202, (<-large).status)
}

func TestPushStopping(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token})
	p.subscribe()
	waiting := p.post("application/json", "{}")
	p.next()
	require.NoError(t, p.source.Close())
	require.Equal(t, 503, (<-waiting).status)
	require.Equal(t, 503, (<-p.post("application/json", "{}")).status)
	_, err := p.source.Subscribe(t.Context(), "again")
	require.Error(t, err)
}

// A client that hangs up in the middle of a request leaves no gap in the
// numbers, and its events are taken in or given up as a whole process is.
func TestPushClientHangsUp(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token})
	p.subscribe()
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.server.URL, strings.NewReader("{\"n\":1}\n{\"n\":2}\n"))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("Authorization", "Bearer "+token)
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err == nil {
			resp.Body.Close()
		}
	}()
	one := p.next()
	cancel()
	<-done
	two := p.next()
	require.NoError(t, one.Context().Err(), "the message outlives its request")
	one.Ack()
	two.Ack()
	after := p.post("application/json", `{"n":3}`)
	three := p.next()
	require.Equal(t, []uint64{0, 1, 2}, []uint64{seqOf(one), seqOf(two), seqOf(three)})
	three.Ack()
	require.Equal(t, 202, (<-after).status)
}

// A source that finds an event id in a header must see it, under the name that
// its configuration gives.
func TestPushHandsOnTheHeadersThatAreAskedFor(t *testing.T) {
	p := newPush(t, sources.PushOptions{Token: token, Headers: []string{"content-type", "ce_absent"}})
	p.subscribe()
	result := p.post("application/json", `{"n":0}`)
	m := p.next()
	require.Equal(t, message.Metadata{"content-type": "application/json"}, m.Metadata)
	m.Nack()
	m = p.next()
	require.Equal(t, "application/json", m.Metadata.Get("content-type"), "also when it comes again")
	m.Ack()
	require.Equal(t, 202, (<-result).status)
}
