package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Each unchanged entity is sent again once a period, at the latest a lap after its time, and one
// that a lap's crash lets be asked again is not: kills lose progress that is not saved, requests
// are decided late or twice, and the duty is spread over the period.
func TestARefreshSendsEachEntityOnceAPeriod(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const entities = 40
		period := time.Duration(rapid.IntRange(1, 1000).Draw(r, "period")) * time.Minute
		lap := max(period/lapsPerPeriod, minLapPause)
		start := time.UnixMilli(rapid.Int64Range(1e12, 2e12).Draw(r, "start"))
		at, next := start, change.Version(entities)
		version, sent := map[string]change.Version{}, map[string][]time.Time{}
		for i := range entities {
			version[fmt.Sprintf("e%02d", i)] = v(int64(i))
		}
		var f *Flow
		var p *Partition
		var queue *Queue
		takeOver := func(saved store.ServicePosition) {
			f = NewFlow(1 << 20)
			queue = &Queue{Number: 3, Refresh: period}
			f.Add(queue)
			row := store.Progress{Token: store.Token{1}, Positions: []store.ServicePosition{saved}}
			p = f.Assign(&row)
		}
		saved, place := store.ServicePosition{Service: 3, Version: v(entities)}, ""
		takeOver(saved)
		save := func() {
			if swap, needed := p.Swap(store.Token{1}); needed {
				saved = swap.Positions[0]
				p.Swapped(true)
			}
		}
		for at.Sub(start) < 4*period {
			served, after, from, to, idle := f.JoinWalk(place, nil, at)
			if len(served) == 0 {
				at = at.Add(min(idle, lap))
				if rapid.Bool().Draw(r, "save") {
					save()
				}
				continue
			}
			n := rapid.IntRange(1, entities).Draw(r, "page")
			place = ""
			for i := range entities {
				e := fmt.Sprintf("e%02d", i)
				if e <= after {
					continue
				}
				if n == 0 {
					break
				}
				place, n = e, n-1
				if v := version[e]; from <= v && v < to && served[0].Covers(after, e+"~") && served[0].Asks(e, v) {
					version[e] = change.NewVersion(1, int64(next)) // decided at once, or later
					next++
					sent[e] = append(sent[e], at)
				}
			}
			if place == fmt.Sprintf("e%02d", entities-1) {
				place = ""
			}
			if rapid.IntRange(0, 19).Draw(r, "kill") == 0 {
				takeOver(saved)
				continue
			}
			served[0].Visited(place)
			p.lanes[0].upTo = v(int64(next))
			if rapid.Bool().Draw(r, "save") {
				save()
			}
		}
		for e, times := range sent {
			require.LessOrEqual(r, len(times), 4, e)
			for i := 1; i < len(times); i++ {
				require.GreaterOrEqual(r, times[i].Sub(times[i-1]), period-2*lap, "%s: %v", e, times)
			}
		}
		for e := range version {
			times := append([]time.Time{start}, sent[e]...)
			for i := range times {
				end := start.Add(4 * period)
				if i+1 < len(times) {
					end = times[i+1]
				}
				require.LessOrEqual(r, end.Sub(times[i]), period+3*lap, "%s: %v of %v", e, times, period)
			}
		}
	})
}

// A service that fails is not refreshed while changes are in hand. With none, nothing else would show
// that its sink works again: they were given up, or went with their partition to another process.
func TestAFailureWithoutChangesHoldsUpNoRefresh(t *testing.T) {
	t.Parallel()
	for busy, laps := range map[bool]int{true: 0, false: 1} {
		f := NewFlow(1 << 20)
		q := &Queue{Number: 3, Refresh: time.Minute}
		f.Add(q)
		p := f.Assign(&store.Progress{Token: store.Token{1}, Positions: []store.ServicePosition{{Service: 3, Version: v(40)}}})
		f.SetFailing(q, true)
		q.SetBusy(busy, false)
		begun := 0
		for at := time.Unix(1000, 0); at.Before(time.Unix(1010, 0)) && begun == 0; at = at.Add(time.Second) {
			served, _, _, _, _ := f.JoinWalk("", nil, at)
			begun += len(served)
			p.Swap(store.Token{1})
			p.Swapped(true)
		}
		require.Equal(t, laps, begun, "busy: %v", busy)
	}
}
