package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I4: A,B,A is three changes and a repetition none, all in one batch.
func TestLastSeenInOneBatch(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	lines := ""
	for i, s := range []string{"A", "B", "A", "A", "A", "B", "A"} {
		lines += harness.Event(i, "X", s)
	}
	lines += harness.Event(7, "Y", "A") + harness.Event(8, "Y", "A") + harness.Event(9, "Y", "A") + harness.Event(10, "Y", "B")
	p.Write("events.jsonl", lines+`{"event":"e11","id":"Y","op":"delete"}`+"\n"+harness.Event(12, "Y", "B"))
	p.Drain()
	got := p.Records("out/acme.jsonl")
	require.Equal(t, []string{"A", "B", "A", "B", "A"}, harness.States(got, "X"))
	require.Equal(t, []string{"A", "B", "-", "B"}, harness.States(got, "Y"))
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", got))
}

// I1, I2, I4: the same across kill -9 between any two of them: right after the
// delivery, when nothing but the sink may know of it.
func TestLastSeenAcrossKills(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	for i, s := range []string{"A", "A", "B", "A", "B", "B", "A"} {
		run := p.Start("run")
		p.Append("events.jsonl", harness.Event(2*i, "X", s)+harness.Event(2*i+1, fmt.Sprint("tick", i), "T"))
		harness.Eventually(t, "the delivery", func() error {
			return harness.Want(len(harness.States(p.Whole("out/acme.jsonl"), fmt.Sprint("tick", i))), 1)
		})
		run.Kill()
	}
	p.Drain()
	got := p.Records("out/acme.jsonl")
	require.Equal(t, []string{"A", "B", "A", "B", "A"}, harness.States(got, "X"))
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", got))
}

// I7, I9: what cannot be taken in or decided becomes a dead letter that can be
// listed and shown; everything else flows.
func TestBrokenEventsBecomeDeadLetters(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	p.Write("weir.yaml", harness.ReplaceOnce(t, harness.SimpleMain, "strip: [event]", "strip: [event]\n    max_event: 1KiB")+"limits: {entity_id: 64B}\n")
	p.Write("customers/picky.yaml", `
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
	lines := harness.Event(1, "X", "A")
	for i, b := range bad {
		lines += b.line + "\n" + harness.Event(2+i, "X", fmt.Sprint("after", i))
	}
	p.Write("events.jsonl", lines+`{"id":7,"event":"number","state":"A"}`+"\n")
	s := p.Drain()
	require.EqualValues(t, len(bad), s.Dead)

	got := p.Records("out/acme.jsonl")
	require.Len(t, harness.States(got, "X"), 1+len(bad), "everything around the broken events came through")
	require.Equal(t, []string{"A"}, harness.States(got, "7"), "a number is an id by its digits")
	require.Len(t, harness.States(got, "N"), 1, "one customer's filter stops that customer only")
	require.Len(t, p.Records("out/picky.jsonl"), 3) // X matched, X did not any more, 7

	letters := p.Letters()
	require.Len(t, letters, len(bad))
	payloads := map[string]harness.Letter{}
	for _, l := range letters {
		shown := p.Letter(l.ID)
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
	require.Zero(t, p.Drain().Dead, "nothing dies twice")
	require.Len(t, p.Letters(), len(bad))
}
