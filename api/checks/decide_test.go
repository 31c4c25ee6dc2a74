package checks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// desk is one entity without a store.
type desk struct {
	*testing.T
	row store.CheckRow
	now time.Time
}

func newDesk(t *testing.T) *desk {
	return &desk{T: t, row: store.CheckRow{Key: store.Key{Service: 1, Entity: "e"}}, now: time.UnixMicro(1_000_000)}
}

// ask checks "content", "content event" or "content event sequence".
func (d *desk) ask(text string) Answer {
	d.Helper()
	part := append(strings.Fields(text), "", "")
	r := Request{Entity: "e", Content: Given(part[0]), EventID: strings.TrimLeft(part[1], "-"), Sequence: part[2]}
	next, a, err := Decide("acme/crm@check", d.row, r, d.now)
	require.NoError(d, err)
	d.row = next
	d.now = d.now.Add(time.Second)
	return a
}

func (d *desk) confirm(v change.Version) {
	d.Helper()
	next, err := Confirm(d.row, v)
	require.NoError(d, err)
	d.row = next
}

func (d *desk) release(v change.Version, o Outcome) Released {
	d.Helper()
	next, r, err := Release(d.row, v, o)
	require.NoError(d, err)
	d.row = next
	return r
}

// script asks one after the other, confirms what passes, and returns the
// decisions by their first letters; a small one for a pass once more.
func (d *desk) script(confirm bool, asks ...string) string {
	d.Helper()
	var got strings.Builder
	for _, text := range asks {
		a := d.ask(text)
		letter := strings.ToUpper(string(a.Decision[:1]))
		if a.Repeated {
			letter = strings.ToLower(letter)
		}
		got.WriteString(letter)
		if confirm && a.Decision == Pass {
			d.confirm(a.Version)
		}
	}
	return got.String()
}

func TestLastSeen(t *testing.T) {
	for name, c := range map[string]struct {
		confirm bool
		asks    []string
		want    string
	}{
		"A,B,A,B are four":                             {true, []string{"A", "B", "A", "B"}, "PPPP"},
		"also when nothing is confirmed":               {false, []string{"A", "B", "A", "B"}, "PPPP"},
		"A,A,A,B are two":                              {true, []string{"A", "A", "A", "B"}, "PDDP"},
		"unconfirmed, the same passes again":           {false, []string{"A", "A", "A", "B", "B"}, "PppPp"},
		"whichever event asks":                         {false, []string{"A e1", "A e2", "A e1"}, "Ppp"},
		"an event again is a duplicate once confirmed": {true, []string{"A e1", "A e1"}, "PD"},
		"an event is stale after something newer":      {true, []string{"A e1", "B e2", "A e1", "A e3", "A e1"}, "PPSPS"},
		"also when what is newer is not confirmed":     {false, []string{"A e1", "B e2", "A e1"}, "PPS"},
		"a duplicate's event is remembered":            {true, []string{"A e1", "A e2", "B e3", "A e2"}, "PDPS"},
		"the id for other content is another event":    {true, []string{"A e1", "B e1", "A e1", "B e1"}, "PPSD"},
		"an older sequence is stale":                   {true, []string{"A - 1", "B - 3", "A - 2"}, "PPS"},
		"a duplicate's sequence is remembered":         {true, []string{"A - 1", "A - 3", "B - 2"}, "PDS"},
		"a repeated pass's too":                        {false, []string{"A - 1", "A - 3", "B - 2"}, "PpS"},
		"an equal sequence is decided":                 {true, []string{"A - 1", "B - 1"}, "PP"},
		"sequences are numbers of any length":          {true, []string{"A - 9", "B - 10", "C - 0099999999999999999999"}, "PPP"},
		"a known event is told before its sequence":    {false, []string{"A e1 1", "A e2 2", "A e1 1"}, "Ppp"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, newDesk(t).script(c.confirm, c.asks...))
		})
	}
}

// The last 16 events are remembered, with any outcome.
func TestSixteenEventsAreRemembered(t *testing.T) {
	d := newDesk(t)
	first := d.ask("A e0")
	d.confirm(first.Version)
	for n := range 15 {
		require.Equal(t, Duplicate, d.ask(fmt.Sprint("A f", n)).Decision)
	}
	require.Equal(t, "P", d.script(true, "B"), "an event without an id takes no place")
	require.Equal(t, "S", d.script(true, "A e0"))
	require.Equal(t, "D", d.script(true, "B f99"))
	require.Equal(t, "P", d.script(true, "A e0"), "forgotten: it is news")
	require.LessOrEqual(t, len(d.row.Memory), 4+16*20)
}

func TestVersionsGrow(t *testing.T) {
	d := newDesk(t)
	a := d.ask("A")
	assert.EqualValues(t, 1_000_000, a.Version, "microseconds of the clock")
	d.now = time.UnixMicro(5)
	b := d.ask("B")
	assert.Equal(t, a.Version+1, b.Version, "whatever the clock does")
	d.now = time.UnixMicro(-5)
	c := d.ask("A")
	assert.Equal(t, b.Version+1, c.Version)
	assert.NotEqual(t, a.Key, c.Key)
	assert.Equal(t, change.Key("acme/crm@check", "e", c.Version, Given("A")), c.Key)
	again := d.ask("A")
	assert.Equal(t, Answer{Decision: Pass, Version: c.Version, Key: c.Key, Repeated: true}, again)
	fresh := newDesk(t)
	fresh.now = time.UnixMicro(-1)
	assert.EqualValues(t, 1, fresh.ask("A").Version)
}

// A request that brings nothing new writes nothing.
func TestWhatIsWritten(t *testing.T) {
	d := newDesk(t)
	d.script(true, "A e1 5")
	for text, writes := range map[string]bool{"A": false, "A e1": false, "A e1 5": false, "A - 5": false, "B - 4": false, "A e2": true, "A - 6": true} {
		e := *d
		e.ask(text)
		assert.Equal(t, !writes, same(&d.row, &e.row), text)
	}
}

// A hash of the caller never equals a content that Weir computed.
func TestGivenContents(t *testing.T) {
	digest, err := canonicaltree.Sum([]byte(`{"a":1}`), canonicaltree.Literal)
	require.NoError(t, err)
	c := change.Hashed(canonicaltree.Scheme, digest)
	assert.NotEqual(t, c, Given(string(c)))
	assert.NotEqual(t, c, Given(fmt.Sprintf("%x", c[1:])))
	assert.NotEqual(t, Given("a"), Given("b"))
	assert.False(t, Given("a").IsRetracted())
}

func TestUnreadableRow(t *testing.T) {
	for _, memory := range [][]byte{{1}, {2, 0, 0}, {1, 0, 5, 'a'}, {1, 0, 0, 'x'}, append([]byte{1, 0, 0}, make([]byte, 17*20)...), {1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		row := store.CheckRow{Memory: memory}
		_, _, err := Decide("s", row, Request{Content: Given("A")}, time.Now())
		assert.Equal(t, store.Fatal, store.ClassOf(err), "%v: %v", memory, err)
		_, err = Confirm(row, 1)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
		_, _, err = Release(row, 1, Unknown)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
	}
}

func FuzzMemory(f *testing.F) {
	m := memory{released: true, sequence: "17", events: []knownEvent{{change.EventMark("e", Given("A")), 5}}}
	f.Add(m.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMemory(b)
		if err != nil {
			return
		}
		back, err := decodeMemory(m.encode())
		require.NoError(t, err)
		require.Equal(t, m, back)
	})
}
