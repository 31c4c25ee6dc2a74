package limits

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// breakers are the ways in which an event can be no JSON that Weir takes.
var breakers = []func(r *rand.Rand, line string) string{
	func(r *rand.Rand, line string) string { return line[:1+r.IntN(len(line)-1)] }, // truncated
	func(r *rand.Rand, line string) string {
		return strings.Replace(line, `"state":"`, "\"state\":\"\xff", 1)
	}, // invalid UTF-8
	func(r *rand.Rand, line string) string { return strings.Replace(line, `{`, `{"id":"E1",`, 1) },            // a member twice
	func(r *rand.Rand, line string) string { return strings.Replace(line, `"id"`, `"i\u0064":"E1","id"`, 1) }, // twice, once in disguise
	func(r *rand.Rand, line string) string { return line + `}` },
	func(r *rand.Rand, line string) string { return line + line },
	func(r *rand.Rand, line string) string { // one level too deep
		depth := canonicaltree.DefaultDepth // the object around it is a level, too
		return strings.Replace(line, `{`, `{"deep":`+strings.Repeat("[", depth)+strings.Repeat("]", depth)+`,`, 1)
	},
	func(r *rand.Rand, line string) string { // far too deep
		return strings.Replace(line, `{`, `{"deep":`+strings.Repeat(`{"d":`, 50_000)+`1`+strings.Repeat("}", 50_000)+`,`, 1)
	},
	func(r *rand.Rand, line string) string {
		return strings.Replace(line, `"state":"`, `"state":01,"x":"`, 1)
	},
	func(r *rand.Rand, line string) string {
		return strings.Replace(line, `"state":"`, `"state":"\ud800`, 1)
	}, // half a surrogate pair
}

// I9: with a fifth of a stream broken in every way, the rest flows exactly as
// the model says, and every broken event is a dead letter that holds it.
func TestFifthOfTheStreamBroken(t *testing.T) {
	const events, entities = 5000, 100
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	random := rand.New(rand.NewPCG(5, 5))
	var text strings.Builder
	broken := map[int64]string{}
	for n := range events {
		line := strings.TrimSuffix(harness.Event(n, fmt.Sprint("E", random.IntN(entities)), fmt.Sprint("s", random.IntN(4))), "\n")
		if n%5 == 2 {
			line = breakers[n/5%len(breakers)](random, line)
			broken[int64(text.Len())] = line
		}
		text.WriteString(line + "\n")
	}
	p.Write("events.jsonl", text.String())
	require.Len(t, broken, events/5)
	require.EqualValues(t, len(broken), p.Drain().Dead)

	input := harness.ReadLines(t, map[string]string{"events": p.Path("events.jsonl")})
	for offset := range broken {
		delete(input.All["events"], offset) // found in the inbox, it would fail the test
	}
	want, err := oracle.Run(harness.SimpleModel("acme"), harness.ModelEvents(t, 1, p.Inbox(), input.Find))
	require.NoError(t, err)
	input.Complete()
	require.NoError(t, oracle.CheckLog(want, "acme/all@out", p.Records("out/acme.jsonl")))

	codes := map[string]int{}
	for _, l := range letters(t, p) {
		line, ok := broken[l.Offset]
		require.True(t, ok, "a letter of a sound event, or the second one of a broken event, at %d", l.Offset)
		require.Equal(t, line, string(l.Payload))
		require.Equal(t, store.StageIngest, l.Stage)
		require.NotEmpty(t, l.Reason)
		codes[l.Code]++
		delete(broken, l.Offset)
	}
	require.Empty(t, broken, "broken events without a dead letter")
	require.Equal(t, map[string]int{"bad_json": events / 5}, codes)
	require.Zero(t, p.Drain().Dead, "nothing dies twice")
}

// letters reads all dead letters of an embedded project whose process has
// ended, with their payloads.
func letters(t *testing.T, p harness.Project) []store.DeadLetter {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: p.Path("data/state.db")})
	require.NoError(t, err)
	defer s.Close()
	var all []store.DeadLetter
	for after := int64(0); ; {
		page, err := s.ListLetters(t.Context(), store.LetterFilter{AfterID: after})
		require.NoError(t, err)
		if len(page) == 0 {
			return all
		}
		for _, l := range page {
			whole, err := s.Letter(t.Context(), l.ID)
			require.NoError(t, err)
			all = append(all, whole)
			after = l.ID
		}
	}
}
