package storetest

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// RunDoubt runs what depends on sessions of the server. open returns a store as Run has it, and
// what makes the present session a former one, as a restart or a restore does.
func RunDoubt(t *testing.T, open func(t *testing.T) (s store.Store, restart func())) {
	for _, c := range []struct {
		name string
		run  func(d *doubting)
	}{
		{"I2 a restarted store is in doubt until what the inbox had is decided", func(d *doubting) {
			assert.False(d, d.doubt(), "nothing was decided before")
			taken, _ := d.own(d.a, 'a', p0)
			assert.False(d, taken[0].Doubt)
			d.restart()
			assert.True(d, d.doubt(), "also if nothing is taken over")
			taken, stale := d.own(d.a, 'b', p0, p1)
			assert.True(d, taken[0].Doubt && taken[1].Doubt)
			taken, token := d.own(d.a, 'c', p0, p1)
			assert.True(d, taken[0].Doubt && taken[1].Doubt, "the end is not known yet")
			d.end(stale, map[store.Partition]int64{p0: 0, p1: 0})
			assert.True(d, d.doubt(), "of another owner")
			d.end(token, map[store.Partition]int64{p0: 5, p1: 0})
			d.end(token, map[store.Partition]int64{p0: 2}) // it is noted once
			require.NoError(d, d.decide(p0, 0, 4, token))
			assert.True(d, d.doubt())
			taken, token = d.own(d.a, 'd', p0)
			assert.False(d, taken[0].Doubt, "the end is known")
			require.NoError(d, d.decide(p0, 4, 5, token))
			assert.False(d, d.doubt())
			d.restart()
			assert.True(d, d.doubt(), "what was noted holds in its session")
		}},
		{"I2 a partition that was never taken over is in doubt", func(d *doubting) {
			d.restart()
			_, token := d.own(d.a, 'a', p0)
			d.end(token, map[store.Partition]int64{p0: 0})
			assert.True(d, d.doubt())
			taken, _ := d.own(d.a, 'b', p1)
			assert.True(d, taken[0].Doubt)
		}},
		{"I2 a generation ends all doubt, and begins with an activation", func(d *doubting) {
			_, token := d.own(d.a, 'a', p0)
			require.NoError(d, d.decide(p0, 0, 7, token))
			d.restart()
			_, token = d.own(d.a, 'b', p0, p1)
			next, err := d.a.Activate(d.ctx(), []byte("next"), false, d.inbox, func(h store.History) (store.Noted, error) {
				assert.True(d, h.Doubt)
				return store.Noted{Revision: 9, Generation: 3, Journal: "J", Void: 8}, nil
			})
			require.NoError(d, err)
			assert.EqualValues(d, 9, next.Number)
			known, err := d.a.KnownInbox(d.ctx(), "inbox", "A")
			require.NoError(d, err)
			assert.EqualValues(d, 3, known.Generation)
			d.revision = next.Number
			require.ErrorIs(d, d.decide(p0, 7, 8, token), store.ErrFenced)
			assert.False(d, d.doubt())
			taken, _ := d.own(d.a, 'c', store.Partition{Generation: 3}, store.Partition{Generation: 3, Number: 1})
			assert.EqualValues(d, 7, taken[0].NextOffset)
			assert.False(d, taken[0].Doubt || taken[1].Doubt)
			d.restart()
			assert.True(d, d.doubt())
			_, err = d.a.RenewInbox(d.ctx(), known, nil, opens(4))
			require.NoError(d, err)
			assert.False(d, d.doubt())
		}},
		{"I5 a generation that begins before anything was decided ends the one before", func(d *doubting) {
			renewed, err := d.a.RenewInbox(d.ctx(), d.inbox, nil, nil)
			require.NoError(d, err)
			_, err = d.a.TakeOver(d.ctx(), []store.Partition{p1}, store.Token{'a'})
			require.ErrorIs(d, err, store.ErrFenced)
			taken, _ := d.own(d.a, 'b', store.Partition{Generation: renewed.Generation}, store.Partition{Generation: renewed.Generation, Number: 1})
			assert.False(d, taken[0].Doubt || taken[1].Doubt || d.doubt())
		}},
		{"I2 the history has what the journal is compared with, and no void number takes effect", func(d *doubting) {
			history := func() store.History {
				h, err := d.a.History(d.ctx())
				require.NoError(d, err)
				return h
			}
			assert.Equal(d, store.History{Generation: 1, Active: 1, Revisions: []int64{1}}, history())
			activate := func(fingerprint string, number int64) error {
				_, err := d.a.Activate(d.ctx(), []byte(fingerprint), false, d.inbox, above(number-1))
				return err
			}
			require.NoError(d, activate("b", 4))
			assert.Equal(d, store.History{Generation: 1, Active: 4, Revisions: []int64{1, 4}}, history())
			_, err := d.a.RenewInbox(d.ctx(), d.inbox, nil, func(h store.History) (store.Noted, error) {
				assert.Equal(d, history(), h)
				return store.Noted{Generation: 6, Journal: "J", Void: 5}, nil
			})
			require.NoError(d, err)
			assert.Equal(d, store.History{Generation: 6, Active: 4, Journal: "J", Void: 5, Revisions: []int64{4}}, history())
			require.ErrorIs(d, activate("c", 5), store.ErrFenced)
			require.NoError(d, activate("c", 6))
			assert.Equal(d, store.History{Generation: 6, Active: 6, Journal: "J", Void: 5, Revisions: []int64{6}}, history())
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, restart := open(t)
			d := &doubting{fixture: &fixture{T: t, a: s, b: s}, restart: restart}
			var err error
			d.inbox, err = s.ResolveInbox(t.Context(), "inbox", "A", 2, nil)
			require.NoError(t, err)
			assert.False(t, d.doubt())
			d.revision = d.fixture.revision()
			c.run(d)
		})
	}
}

// doubting is a store whose inbox has two partitions.
type doubting struct {
	*fixture
	restart  func()
	inbox    store.Inbox
	revision int64
}

// doubt returns what an activation would be told.
func (d *doubting) doubt() (is bool) {
	d.Helper()
	probe := errors.New("a probe")
	_, err := d.a.Activate(d.ctx(), []byte("another"), false, d.inbox, func(h store.History) (store.Noted, error) {
		is = h.Doubt
		return store.Noted{Revision: math.MaxInt64}, probe
	})
	require.ErrorIs(d, err, probe)
	return is
}

// own is fixture.own with the doubt.
func (d *doubting) own(s store.Store, letter byte, partitions ...store.Partition) ([]store.TakenOver, store.Token) {
	d.Helper()
	token := store.Token{letter}
	taken, err := s.TakeOver(d.ctx(), partitions, token)
	require.NoError(d, err)
	return taken, token
}

func (d *doubting) end(token store.Token, ends map[store.Partition]int64) {
	d.Helper()
	require.NoError(d, d.a.EndDoubt(d.ctx(), token, ends))
}

func (d *doubting) decide(p store.Partition, from, to int64, token store.Token) error {
	return d.a.Decide(d.ctx(), store.Decision{Revision: d.revision, Moves: []store.WatermarkStep{{Partition: p, From: from, To: to, Token: token}}}, writes(store.Outcome{}))
}
