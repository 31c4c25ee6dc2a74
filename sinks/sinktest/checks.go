package sinktest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

const randomName = "I1 I2 I5 random sequences"

type check struct {
	name    string
	applies func(*Target) bool
	run     func(testing.TB, *suite)
}

func always(*Target) bool          { return true }
func stateOnly(tg *Target) bool    { return tg.Kind == sinks.State }
func logOnly(tg *Target) bool      { return tg.Kind == sinks.Log }
func hasBadChange(tg *Target) bool { return tg.BadChange != nil }
func hasOutage(tg *Target) bool    { return tg.Outage != nil }
func hasRefuse(tg *Target) bool    { return tg.Refuse != nil }

// checks lists the suite in the order in which it runs: failures of the whole
// target last, since they may leave it slow.
func checks() []check {
	return []check{
		{"traits and close without open", always, checkTraits},
		{"I1 one change arrives", always, checkArrives},
		{"I1 empty batch changes nothing", always, checkEmpty},
		{"I2 same change twice is one effect", always, checkTwice},
		{"I2 same change twice in one batch is one effect", always, checkTwiceInBatch},
		{"I2 same batch after a crash before the confirm is one effect", always, checkCrash},
		{"I2 redelivery from an earlier point is one effect", always, checkRedelivery},
		{"I5 older version after newer changes nothing", stateOnly, checkOlder},
		{"I5 older upsert does not resurrect a retracted entity", stateOnly, checkResurrect},
		{"I5 older version after newer in another batch and another sink", stateOnly, checkOlderReopened},
		{"I9 late dead letter takes effect once with its own version", logOnly, checkLate},
		{"retraction, and an upsert after it", always, checkRetraction},
		{"retraction of an unknown entity", always, checkRetractUnknown},
		{"I1 one entity many times in a batch, in order", always, checkInOrder},
		{"I4 A B A B are four changes", always, checkABAB},
		{"odd entity ids stay apart", always, checkIDs},
		{"odd texts in documents", always, checkTexts},
		{"big documents", always, checkBig},
		{"a scan pages through the newest rows by bytes", always, checkScan},
		{"I9 a bad change fails alone", hasBadChange, checkBad},
		{"I9 a bad change between good ones of its entity", hasBadChange, checkBadSameEntity},
		{"I9 a batch of bad changes only", hasBadChange, checkAllBad},
		{"cancelled context returns soon, a repeat makes it whole", always, checkCancelled},
		{randomName, always, checkRandom},
		{"refused as a whole is a pause", hasRefuse, checkRefused},
		{"outage is a retry, then the same sink goes on", hasOutage, checkOutage},
		{"open during an outage is a retry, then opens", hasOutage, checkOpenOutage},
	}
}

func checkTraits(t testing.TB, s *suite) {
	sink := s.New(t)
	traits := sink.Traits()
	require.Equal(t, s.Kind, traits.Kind)
	require.GreaterOrEqual(t, traits.MaxBatch, 1)
	require.GreaterOrEqual(t, traits.MaxBytes, 0)
	require.NoError(t, sink.Close(), "Close without Open")
}

func checkArrives(t testing.TB, s *suite) {
	f := s.open(t)
	f.write(s.upsert(s.entity("arrives"), "first"))
	f.verify()
	f.reopen()
	f.verify()
}

func checkEmpty(t testing.TB, s *suite) {
	f := s.open(t)
	f.write(s.upsert(s.entity("empty"), "first"))
	require.NoError(t, f.sink.Write(t.Context(), nil))
	require.NoError(t, f.sink.Write(t.Context(), []change.Change{}))
	f.verify()
}

func checkTwice(t testing.TB, s *suite) {
	f := s.open(t)
	c := s.upsert(s.entity("twice"), "first")
	f.write(c)
	f.write(c)
	f.verify()
	r := s.retract(c.Entity)
	f.write(r)
	f.write(r)
	f.verify()
}

func checkTwiceInBatch(t testing.TB, s *suite) {
	f := s.open(t)
	c, other := s.upsert(s.entity("twice"), "first"), s.upsert(s.entity("other"), "first")
	f.write(c, c, other, other)
	f.verify()
}

func checkCrash(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.entity("a"), s.entity("b")
	batch := []change.Change{s.upsert(a, "1"), s.upsert(b, "1"), s.upsert(a, "2"), s.retract(b)}
	f.write(batch...)
	f.reopen()
	f.write(batch...)
	f.verify()
	f.write(s.upsert(a, "3"))
	f.verify()
}

func checkRedelivery(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.entity("a"), s.entity("b")
	all := []change.Change{s.upsert(a, "1"), s.upsert(b, "1"), s.upsert(a, "2"), s.upsert(b, "2")}
	f.write(all[:3]...)
	f.write(all[3:]...)
	all = append(all, s.upsert(a, "3"), s.retract(b))
	f.write(all[1:]...)
	f.verify()
	f.reopen()
	f.write(all...)
	f.verify()
}

func checkOlder(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("older")
	older, newer := s.upsert(e, "older"), s.upsert(e, "newer")
	f.write(newer)
	f.write(older)
	f.verify()
	olderRetract := Change(s.service(), e, older.Version, nil)
	f.write(olderRetract)
	f.verify()
}

func checkResurrect(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("dead")
	first, older := s.upsert(e, "first"), s.upsert(e, "older")
	f.write(first, s.retract(e))
	f.verify()
	f.write(older)
	f.verify()
	f.reopen()
	f.write(first, older)
	f.verify()
}

func checkOlderReopened(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.entity("a"), s.entity("b")
	older := []change.Change{s.upsert(a, "older"), s.upsert(b, "older")}
	f.write(s.upsert(a, "newer"), s.retract(b))
	f.reopen()
	// The batch brings something older of one entity and something new of another.
	f.write(append(older, s.upsert(s.entity("c"), "new"))...)
	f.verify()
}

func checkLate(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("late")
	first, dead, third := s.upsert(e, "1"), s.upsert(e, "2"), s.upsert(e, "3")
	f.write(first, third)
	f.write(dead)
	f.verify()
	f.write(dead, third)
	f.verify()
}

func checkRetraction(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("retracted")
	f.write(s.upsert(e, "1"))
	f.write(s.retract(e))
	f.verify()
	f.write(s.upsert(e, "2"))
	f.verify()
	f.write(s.retract(e), s.upsert(e, "3"), s.retract(e))
	f.verify()
}

func checkRetractUnknown(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("unknown")
	older := s.upsert(e, "older")
	f.write(s.retract(e))
	f.verify()
	if s.Kind == sinks.State {
		f.write(older)
		f.verify()
	}
}

func checkInOrder(t testing.TB, s *suite) {
	f := s.open(t)
	entities := []string{s.entity("a"), s.entity("b"), s.entity("c")}
	var batch []change.Change
	for i := range 60 {
		e := entities[i%len(entities)]
		if i%11 == 10 {
			batch = append(batch, s.retract(e))
			continue
		}
		batch = append(batch, s.upsert(e, strings.Repeat("x", i)))
	}
	f.write(batch...)
	f.verify()
}

func checkABAB(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("abab")
	a, b := s.doc(1, "a"), s.doc(2, "b")
	for _, doc := range [][]byte{a, b, a, b} {
		f.write(Change(s.service(), e, s.version(), doc))
		f.verify()
	}
	f.write(Change(s.service(), e, s.version(), a), Change(s.service(), e, s.version(), b))
	f.verify()
}

// oddTexts are what careless quoting, escaping and comparing trips over.
func oddTexts() []string {
	return []string{
		`O'Brien ''`,                  // single quote
		`say "hi"`,                    // double quote
		`C:\new\table\\ \'`,           // backslash
		"one\ntwo\r\nthree",           // newline
		"a\tb",                        // tab
		"\x01\x1b\x7f",                // control
		`'); DROP TABLE x; --`,        // statement
		`$1 ? :name {a:String} %s @p`, // placeholder
		`<a href="x">&amp;</a>`,       // html
		"żółć 香蕉 بن 🍌 👩‍👩‍👧",         // unicode
		"a\u2028b\u2029c\u0085d",     // line separator
		"\u00e9",                     // composed
		"e\u0301",                    // decomposed
		"\ufeffa",                    // byte order
		"straße",                     // lower
		"STRASSE",                    // upper
		"a ",                         // trailing space
		" a",                         // leading space
		"a/b?c=d&e#f%20%00",          // slash
		"null",                       // null
		"007",                        // number
		strings.Repeat("ab𝄞cd", 128), // 1 KiB
	}
}

func checkIDs(t testing.TB, s *suite) {
	f := s.open(t)
	prefix := s.entity("")
	var batch []change.Change
	for _, text := range oddTexts() {
		e := prefix + text
		e = strings.ToValidUTF8(e[:min(len(e), 1024)], "")
		batch = append(batch, s.upsert(e, "id"))
	}
	f.write(batch...)
	f.verify()
	f.write(batch...)
	f.verify()
	var again []change.Change
	for i, c := range batch {
		if i%2 == 0 {
			again = append(again, s.retract(c.Entity))
		} else {
			again = append(again, s.upsert(c.Entity, "newer"))
		}
	}
	f.write(again...)
	f.verify()
}

func checkTexts(t testing.TB, s *suite) {
	f := s.open(t)
	var batch []change.Change
	for _, text := range oddTexts() {
		batch = append(batch, s.upsert(s.entity("text"), text))
	}
	f.write(batch...)
	f.verify()
}

func checkBig(t testing.TB, s *suite) {
	f := s.open(t)
	big := strings.Repeat("0123456789abcde\n", 1<<16) // 1 MiB
	a, b := s.entity("a"), s.entity("b")
	batch := []change.Change{s.upsert(a, big), s.upsert(b, "small"), s.upsert(a, big+"2")}
	f.write(batch...)
	f.verify()
	f.write(batch...)
	f.verify()
}

// checkScan is for sinks whose target can be read back.
func checkScan(t testing.TB, s *suite) {
	f := s.open(t)
	scannable, ok := f.sink.(sinks.Scannable)
	if !ok {
		return
	}
	prefix := s.entity("scan")
	var ids []string
	for _, text := range []string{"a", "B", "aa", "ä", "z", "Z", "🍌", "b", `o'Neill \ ?`} {
		ids = append(ids, prefix+text)
	}
	newest := map[string]change.Version{}
	for _, text := range []string{"older", "newest"} {
		for _, id := range ids {
			c := s.upsert(id, text)
			newest[id] = c.Version
			f.write(c)
		}
	}
	gone := s.retract(prefix + "b")
	newest[gone.Entity] = gone.Version
	f.write(gone)
	slices.Sort(ids)
	var got []string
	for after, done := prefix, false; !done; {
		visited := 0
		require.NoError(t, scannable.Scan(t.Context(), after, 3, func(h sinks.TargetRow) error {
			visited++
			if after = h.Entity; !strings.HasPrefix(after, prefix) {
				done = true
				return nil
			}
			got = append(got, after)
			require.Equal(t, newest[after], h.Version)
			require.Equal(t, after == gone.Entity, h.Deleted)
			require.False(t, h.Deleted && h.Doc != nil)
			require.True(t, h.Doc == nil || strings.Contains(string(h.Doc), "newest"))
			return nil
		}))
		done = done || visited < 3
	}
	require.Equal(t, ids, got)
	stop := errors.New("stop")
	require.ErrorIs(t, scannable.Scan(t.Context(), prefix, 3, func(sinks.TargetRow) error { return stop }), stop)
}

func checkCancelled(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("cancelled")
	first := s.upsert(e, "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.sendCancelled(ctx, first)
	f.write(first)
	f.verify()

	for _, after := range []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		var batch []change.Change
		other := s.entity("other")
		for range 50 {
			batch = append(batch, s.upsert(e, "again"), s.upsert(other, "again"))
		}
		ctx, cancel := context.WithTimeout(t.Context(), after)
		f.sendCancelled(ctx, batch...)
		cancel()
		f.recover(batch...)
		f.verify()
	}
}

// sendCancelled sends under a context that ends. The result must
// come soon after that, and no failure may count against a change.
func (f *fixture) sendCancelled(ctx context.Context, changes ...change.Change) {
	f.t.Helper()
	start := time.Now()
	failed := f.send(ctx, changes)
	require.Less(f.t, time.Since(start), cancelTimeout, "Write went on after its context had ended")
	for i, err := range failed {
		require.Equal(f.t, sinks.Retry, sinks.Classify(err).Class, "change %d: %v", i, err)
	}
}
