package deliver_test

import (
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// I13: a reload costs the services that it concerns. A write in flight of another one goes
// on, and its sink stays open; the new form of a service continues at its position, with
// its parked changes; a service that returns, too.
func TestReconfigureConcernsTheServicesItNames(t *testing.T) {
	const fourth = "acme/all@fourth"
	w := newWorld(t, service, other, third, fourth)
	p := w.start(map[string]sinks.Traits{service: state, other: state, third: state})
	kept, replaced, removed := p.sinks[service], p.sinks[other], p.sinks[third]
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	kept.answer(func([]change.Change) error { held <- struct{}{}; <-hold; return nil })
	replaced.answer(func(changes []change.Change) error {
		failed := map[int]error{}
		for i, c := range changes {
			if c.Entity == "bad" {
				failed[i] = &sinks.Error{Class: sinks.Retry, RetryAfter: time.Hour, Op: "post", Err: store.ErrNotFound}
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &sinks.BatchError{Failed: failed}
	})
	p.publish(of(service, "a", 0), of(other, "bad", 1), of(other, "good", 2), of(third, "a", 3))
	<-held
	require.Eventually(t, func() bool { return len(replaced.has()) > 0 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return p.stage.Conditions()[other].Parked.Entities == 1 }, patience, time.Millisecond)
	p.delivered(other, third)

	add := func(name string) (deliver.Service, *sink) {
		s := &sink{traits: state}
		return deliver.Service{Name: name, Number: w.numbers[name], Sink: s, Retry: retry()}, s
	}
	otherNow, otherSink := add(other)
	fourthNow, fourthSink := add(fourth)
	p.activate(2)
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{
		Revision: 2, Add: []deliver.Service{otherNow, fourthNow}, Remove: []int32{w.numbers[other], w.numbers[third]},
	}))
	require.True(t, replaced.closed)
	require.True(t, removed.closed)
	release()
	p.publish(of(service, "b", 5), of(other, "b", 6), of(fourth, "b", 7), of(third, "b", 8))
	p.delivered(service, other, fourth)
	require.Equal(t, []string{"a:0", "b:5"}, kept.has())
	require.Equal(t, []string{"b:6"}, otherSink.has())
	require.Equal(t, []string{"b:7"}, fourthSink.has())
	require.Equal(t, 1, p.stage.Conditions()[other].Parked.Entities, "its row is taken over")
	require.NotContains(t, p.stage.Conditions(), third)

	thirdNow, thirdSink := add(third)
	p.activate(3)
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{Revision: 3, Add: []deliver.Service{thirdNow}}))
	p.publish(of(third, "c", 9))
	p.delivered(third)
	require.Contains(t, thirdSink.has(), "b:8")
	require.Contains(t, thirdSink.has(), "c:9")
	require.False(t, kept.closed)
	require.NoError(t, p.stop())
	require.True(t, kept.closed)
}

// I9: a retrying change of a service that is removed, by a reload or before a start, becomes an
// ordinary dead letter. A returning service gets it, though its content equals the state: it
// was never refused.
func TestI9RetryingChangesOfARemovedServiceBecomeLetters(t *testing.T) {
	for name, restart := range map[string]bool{"by a reload": false, "before a start": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service, other)
			soon := later(service, time.Millisecond)
			p := w.start(map[string]sinks.Traits{service: state, other: state}, soon)
			p.sinks[other].answer(func(changes []change.Change) error {
				failed := map[int]error{}
				for i, c := range changes {
					if c.Entity == "bad" {
						failed[i] = &sinks.Error{Class: sinks.Retry, RetryAfter: time.Hour, Op: "post", Err: store.ErrNotFound}
					}
				}
				return &sinks.BatchError{Failed: failed}
			})
			p.publish(of(other, "bad", 0), of(other, "good", 1))
			require.Eventually(t, func() bool { return len(p.sinks[other].has()) > 0 }, patience, time.Millisecond)
			require.Eventually(t, func() bool { return p.stage.Conditions()[other].Parked.Entities == 1 }, patience, time.Millisecond)
			if restart {
				p.delivered(other)
				require.NoError(t, p.stop())
				p = w.start(map[string]sinks.Traits{service: state}, soon)
			} else {
				p.activate(2)
				require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{Revision: 2, Remove: []int32{w.numbers[other]}}))
			}
			p.concluded(1)
			l, err := w.Letter(t.Context(), w.letters()[0].ID)
			require.NoError(t, err)
			require.Equal(t, []any{deliver.CodeServiceRemoved, other, "bad"}, []any{l.Code, l.Service, l.Entity})
			c, err := deliver.ChangeOf(l)
			require.NoError(t, err)
			require.Equal(t, at(0), c.Version)

			now := deliver.Service{Name: other, Number: w.numbers[other], Sink: &sink{traits: state}, Retry: retry()}
			now.Retry.Later = time.Millisecond
			revision := int64(3)
			if restart {
				revision = 2
			}
			p.activate(revision)
			require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{Revision: revision, Add: []deliver.Service{now}}))
			require.Eventually(t, func() bool { return len(p.order()) == 2 }, patience, time.Millisecond)
			require.Equal(t, "redecide bad", p.order()[1])
			require.True(t, p.controls[0].Force)
			require.Equal(t, l.ID, p.controls[0].Letter)
		})
	}
}
