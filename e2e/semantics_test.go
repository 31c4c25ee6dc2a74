package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/stretchr/testify/require"
)

// I4: A,B,A is three changes and a repetition none, all in one batch.
func TestLastSeenInOneBatch(t *testing.T) {
	p := simple(t, "", map[string]string{"acme": fileSink("acme")})
	lines := ""
	for i, s := range []string{"A", "B", "A", "A", "A", "B", "A"} {
		lines += event(i, "X", s)
	}
	lines += event(7, "Y", "A") + event(8, "Y", "A") + event(9, "Y", "A") + event(10, "Y", "B")
	p.write("events.jsonl", lines+`{"event":"e11","id":"Y","op":"delete"}`+"\n"+event(12, "Y", "B"))
	p.drain()
	got := p.records("out/acme.jsonl")
	require.Equal(t, []string{"A", "B", "A", "B", "A"}, states(got, "X"))
	require.Equal(t, []string{"A", "B", "-", "B"}, states(got, "Y"))
	require.NoError(t, model.CheckLog(p.expected("acme"), "acme/all@out", got))
}

// I1, I2, I4: the same across kill -9 between any two of them: right after the
// delivery, when nothing but the sink may know of it.
func TestLastSeenAcrossKills(t *testing.T) {
	p := simple(t, "", map[string]string{"acme": fileSink("acme")})
	for i, s := range []string{"A", "A", "B", "A", "B", "B", "A"} {
		run := p.start("run")
		p.append("events.jsonl", event(2*i, "X", s)+event(2*i+1, fmt.Sprint("tick", i), "T"))
		eventually(t, "the delivery", func() error {
			return want(len(states(p.whole("out/acme.jsonl"), fmt.Sprint("tick", i))), 1)
		})
		run.kill()
	}
	p.drain()
	got := p.records("out/acme.jsonl")
	require.Equal(t, []string{"A", "B", "A", "B", "A"}, states(got, "X"))
	require.NoError(t, model.CheckLog(p.expected("acme"), "acme/all@out", got))
}

// I7, I9: what cannot be taken in or decided becomes a dead letter that can be
// listed and shown; everything else flows.
func TestBrokenEventsBecomeDeadLetters(t *testing.T) {
	p := simple(t, "", map[string]string{"acme": fileSink("acme")})
	p.write("weir.yaml", replaceOnce(t, simpleMain, "strip: [event]", "strip: [event]\n    max_event: 1KiB")+"limits: {entity_id: 64B}\n")
	p.write("customers/picky.yaml", `
customer: picky
projections:
  upper:
    when: upper(doc.state) == "A"
    fields: {id: id}
    deliver: {out: {file: {path: ../out/picky.jsonl}}}
`)
	long := strings.Repeat("x", 2000)
	bad := []struct{ line, stage, code string }{
		{`{"id":"X","state":`, "ingest", "bad_json"},
		{`{"id":"X","id":"Y"}`, "ingest", "bad_json"},
		{"{\"id\":\"\xff\"}", "ingest", "bad_json"},
		{`{"state":"A"}`, "ingest", "no_entity"},
		{`{"id":"","state":"A"}`, "ingest", "no_entity"},
		{`{"id":null,"state":"A"}`, "ingest", "no_entity"},
		{`{"id":{"a":1},"state":"A"}`, "ingest", "bad_entity"},
		{`{"id":["X"],"state":"A"}`, "ingest", "bad_entity"},
		{`{"id":true,"state":"A"}`, "ingest", "bad_entity"},
		{`{"id":"X\u0000","state":"A"}`, "ingest", "bad_entity"},
		{fmt.Sprintf(`{"id":%q}`, long[:65]), "ingest", "bad_entity"},
		{`{"id":"X","event":{},"state":"A"}`, "ingest", "bad_event_id"},
		{fmt.Sprintf(`{"id":"X","state":%q}`, long), "ingest", "oversized"},
		{`{"id":"N","state":5}`, "decide", "projection"}, // upper(5)
	}
	lines := event(1, "X", "A")
	for i, b := range bad {
		lines += b.line + "\n" + event(2+i, "X", fmt.Sprint("after", i))
	}
	p.write("events.jsonl", lines+`{"id":7,"event":"number","state":"A"}`+"\n")
	s := p.drain()
	require.EqualValues(t, len(bad), s.Dead)

	got := p.records("out/acme.jsonl")
	require.Len(t, states(got, "X"), 1+len(bad), "everything around the broken events came through")
	require.Equal(t, []string{"A"}, states(got, "7"), "a number is an id by its digits")
	require.Len(t, states(got, "N"), 1, "one customer's filter stops that customer only")
	require.Len(t, p.records("out/picky.jsonl"), 3) // X matched, X did not any more, 7

	letters := p.letters()
	require.Len(t, letters, len(bad))
	payloads := map[string]letter{}
	for _, l := range letters {
		shown := p.letter(l.ID)
		require.NotContains(t, shown.Reason, "xxx", "a reason holds no payload")
		payload, err := base64.StdEncoding.DecodeString(shown.PayloadBase64)
		require.NoError(t, err)
		if shown.Payload != nil {
			payload = []byte(*shown.Payload)
		}
		payloads[string(payload[:min(len(payload), 200)])] = shown
	}
	for _, b := range bad {
		l, ok := payloads[b.line[:min(len(b.line), 200)]]
		require.True(t, ok, "no letter shows %s", b.line)
		require.Equal(t, b.stage, l.Stage, b.line)
		require.Equal(t, b.code, l.Code, b.line)
	}
	require.Zero(t, p.drain().Dead, "nothing dies twice")
	require.Len(t, p.letters(), len(bad))
}
