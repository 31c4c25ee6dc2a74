package checks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

func (d *desk) reset() {
	d.Helper()
	d.row.Found = true // a store would say so
	next, err := Reset(d.row)
	require.NoError(d, err)
	d.row = next
}

func TestResetLetsTheNextPass(t *testing.T) {
	for name, c := range map[string]struct {
		before  string // P passes and is confirmed, p passes
		content string
		want    Decision
	}{
		"the same after a confirmed one":       {"P", "A e2", Pass},
		"the same after an open one":           {"p", "A e2", Pass},
		"the very same event":                  {"P", "A e1 5", Pass},
		"another content":                      {"P", "B e2", Pass},
		"but nothing older by its sequence":    {"P", "B e2 4", Stale},
		"nothing older by its sequence, open":  {"p", "B e2 4", Stale},
		"nothing that was superseded before":   {"P", "Z e0", Stale},
		"unless the producer sends it as news": {"P", "Z e9", Pass},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.ask("Z e0 3")
			a := d.ask("A e1 5")
			if c.before == "P" {
				d.confirm(a.Version)
			}
			d.reset()
			again := d.ask(c.content)
			assert.Equal(t, c.want, again.Decision)
			if c.want == Pass {
				assert.Greater(t, again.Version, a.Version)
				assert.NotEqual(t, a.Key, again.Key)
				assert.False(t, again.Repeated)
				once := d.ask(c.content)
				assert.True(t, once.Repeated)
				assert.Equal(t, again.Version, once.Version)
			}
		})
	}
}

// Requests under way at a reset are answered as ever, and cannot make the row
// certain of anything.
func TestLateAnswersAfterAReset(t *testing.T) {
	d := newDesk(t)
	d.confirm(d.ask("A e1").Version)
	open := d.ask("B e2").Version
	d.reset()
	require.Equal(t, Released{Done: true, Version: open}, d.release(open, Refused), "no way back to A")
	d.confirm(open)
	require.Equal(t, open, d.row.DeliveredVersion)
	require.Equal(t, "P", d.script(true, "B"), "still unknown")
	require.Equal(t, "D", d.script(true, "B"))
}

// A reset forgets refused content like delivered content.
func TestResetAfterARefusal(t *testing.T) {
	d := newDesk(t)
	d.confirm(d.ask("A e1").Version)
	require.True(t, d.release(d.ask("B").Version, Refused).Known)
	d.reset()
	require.Equal(t, "P", d.script(true, "A e1"))
	d.reset()
	require.Equal(t, "PS", d.script(true, "C e3", "A e1"), "something newer passed since")
}

func TestLook(t *testing.T) {
	d := newDesk(t)
	look := func() State {
		s, err := Look(d.row)
		require.NoError(t, err)
		return s
	}
	a := d.ask("A e1 7").Version
	require.Equal(t, State{Version: a, Stands: a, Content: Given("A"), Given: true, Sequence: "7", Events: 1}, look())
	s := look()
	require.True(t, s.Open())
	d.confirm(a)
	s = look()
	require.False(t, s.Open() || s.Unknown())
	b := d.ask("B e2").Version
	d.release(b, Refused)
	require.Equal(t, State{Version: b, Confirmed: a, Stands: a, Content: Given("A"), Given: true, GivenBack: true, Sequence: "7", Events: 2}, look())
	d.reset()
	require.Equal(t, State{Version: b, Confirmed: a, GivenBack: true, Sequence: "7", Events: 2}, look())
	_, err := Look(store.CheckRow{Memory: []byte("nonsense")})
	require.Error(t, err)
}

// swaps loses the first swaps of some rows to a caller who came in between.
type swaps struct {
	rows  map[store.Key]store.CheckRow
	meet  map[string]int // entity: how often somebody else is first
	calls int
	fails error
}

func (s *swaps) CheckRows(_ context.Context, keys []store.Key) (rows []store.CheckRow, err error) {
	for _, k := range keys {
		rows = append(rows, s.rows[k])
	}
	return rows, nil
}

func (s *swaps) SwapCheckRows(_ context.Context, rows []store.CheckRow) ([]bool, error) {
	s.calls++
	swapped := make([]bool, len(rows))
	for i, r := range rows {
		have := s.rows[r.Key]
		if s.meet[r.Entity] > 0 {
			s.meet[r.Entity]--
			have, _, _ = Decide("acme/crm@check", have, Request{Entity: r.Entity, Content: Given(fmt.Sprint(s.calls))}, time.UnixMicro(1))
			have.Revision++
			s.rows[r.Key] = have
		}
		if swapped[i] = have.Revision == r.Revision; swapped[i] {
			r.Revision++
			s.rows[r.Key] = r
		}
	}
	return swapped, s.fails
}

// A row that others decide meanwhile is reset all the same, and counted once;
// those that are unknown already are left alone.
func TestResetRowsAgainstOthers(t *testing.T) {
	s := &swaps{rows: map[store.Key]store.CheckRow{}, meet: map[string]int{"b": 3, "d": 1}}
	var rows []store.CheckRow
	for _, e := range []string{"a", "b", "c", "d"} {
		row, _, err := Decide("acme/crm@check", store.CheckRow{Key: store.Key{Service: 1, Entity: e}}, Request{Entity: e, Content: Given("A")}, time.UnixMicro(1))
		require.NoError(t, err)
		row.Found, row.Revision = true, 1
		if e == "c" {
			row, err = Reset(row)
			require.NoError(t, err)
		}
		rows = append(rows, row)
		s.rows[row.Key] = row
	}
	n, err := CountResets(rows)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	n, err = ResetRows(t.Context(), s, rows)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 4, s.calls)
	for k, row := range s.rows {
		require.Nil(t, row.Content, k.Entity)
	}
	require.EqualValues(t, 1, s.rows[rows[2].Key].Revision)

	s.fails = store.WithClass(context.DeadlineExceeded, store.Unknown)
	n, err = ResetRows(t.Context(), s, rows) // as they were read first
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, n)
	_, err = ResetRows(t.Context(), s, []store.CheckRow{{Found: true, Memory: []byte("nonsense")}})
	require.Error(t, err)
}
