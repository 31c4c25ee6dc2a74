package checks

import (
	"context"
	"fmt"
	"testing"
	"time"

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
