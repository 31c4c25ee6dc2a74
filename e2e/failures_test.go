package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/stretchr/testify/require"
)

func replaceOnce(t testing.TB, text, old, new string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(text, old))
	return strings.Replace(text, old, new, 1)
}

// whole is records without a last line that is still being written.
func (p project) whole(name string) []model.Record {
	return p.recordsUpTo(name, true)
}

func want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// I7, I9: a webhook that refuses connections and one that never answers hold
// up no other customer, and get everything when they come back.
func TestDeadWebhooksHoldUpNobody(t *testing.T) {
	const entities = 40
	fine, dead, hung := newReceiver(t), newReceiver(t), newReceiver(t)
	p := simple(t, "", map[string]string{
		"fine": hookSink(fine), "dead": hookSink(dead), "hung": hookSink(hung), "file": fileSink("file"),
	})
	dead.down()
	hung.answers(func(model.Record) int { return 0 })
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 10))
	eventually(t, "the others have everything", func() error {
		return errors.Join(settled(fine.received(), entities, "r9"), settled(p.whole("out/file.jsonl"), entities, "r9"))
	})
	eventually(t, "both bad ones were tried", func() error {
		if run.metric("weir_delivery_failures_total", `service="dead/all@out"`) == 0 || run.metric("weir_delivery_failures_total", `service="hung/all@out"`) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	require.Empty(t, dead.received())
	require.Empty(t, hung.received())
	run.ready(200)

	p.append("events.jsonl", many(entities, 10, 12))
	eventually(t, "new events too", func() error { return settled(fine.received(), entities, "r11") })

	dead.up()
	hung.answers(nil)
	eventually(t, "the backlog is delivered", func() error {
		return errors.Join(settled(dead.received(), entities, "r11"), settled(hung.received(), entities, "r11"))
	})
	run.terminate()
	run.ok()
	require.Empty(t, p.letters())
	expected := p.expected("fine", "dead", "hung", "file")
	for customer, r := range map[string]*receiver{"fine": fine, "dead": dead, "hung": hung} {
		require.NoError(t, model.CheckAttempts(expected, customer+"/all@out", r.received()))
		require.NoError(t, model.CheckState(expected, customer+"/all@out", model.Newest(r.received())))
	}
	require.NoError(t, model.CheckLog(expected, "file/all@out", p.records("out/file.jsonl")))
}

// I9: a service that is refused as a whole pauses, without dead letters, and
// goes on when it is let in again.
func TestRefusedServicePauses(t *testing.T) {
	const entities = 20
	hook := newReceiver(t)
	hook.answers(func(model.Record) int { return 401 })
	p := simple(t, "", map[string]string{"acme": hookSink(hook)})
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 2))
	eventually(t, "the pause", func() error { return want(run.metric("weir_service_paused", `service="acme/all@out"`), 1) })
	hook.answers(nil)
	eventually(t, "the delivery", func() error { return settled(hook.received(), entities, "r1") })
	eventually(t, "the end of the pause", func() error { return want(run.metric("weir_service_paused", `service="acme/all@out"`), 0) })
	run.terminate()
	run.ok()
	require.Empty(t, p.letters())
	require.NoError(t, model.CheckState(p.expected("acme"), "acme/all@out", model.Newest(hook.received())))
}

// I9: one document that is refused is a dead letter, the others flow, and its
// dam row is released to what the customer has: that is held back, and the
// same content again passes.
func TestRefusedDocumentIsReleased(t *testing.T) {
	hook := newReceiver(t)
	p := simple(t, "", map[string]string{"acme": hookSink(hook)})
	run := p.start("run")
	next := 0
	say := func(entity, state string) {
		next++
		p.append("events.jsonl", event(next, entity, state))
	}
	arrives := func(entity, state string) {
		t.Helper()
		eventually(t, entity+" "+state, func() error {
			if s := states(hook.received(), entity); len(s) > 0 && s[len(s)-1] == state {
				return nil
			}
			return errors.New("not yet")
		})
	}
	refusals := func(n int) {
		t.Helper()
		eventually(t, "the refusals", func() error { return want(len(hook.rejected()), n) })
		eventually(t, "the releases", func() error { return want(run.metric("weir_events_total", `outcome="control"`), float64(n)) })
	}
	say("X", "A")
	arrives("X", "A")
	hook.answers(func(r model.Record) int {
		if stateOf(r) == "B" {
			return 422
		}
		return 200
	})
	say("X", "B")
	say("New", "B")
	say("Y", "A")
	refusals(2)
	arrives("Y", "A")
	hook.answers(nil)
	say("X", "A")   // what the customer has, as far as is known: sent again, to be sure
	say("New", "B") // the same content again
	say("X", "B")
	arrives("New", "B")
	arrives("X", "B")
	require.Equal(t, []string{"A", "A", "B"}, states(hook.received(), "X"), "a release goes to unknown: the next content passes")
	require.Equal(t, []string{"B"}, states(hook.received(), "New"))
	run.terminate()
	run.ok()
	letters := p.letters()
	require.Len(t, letters, 2)
	var entities []string
	for _, l := range letters {
		entities = append(entities, l.Entity)
		require.Equal(t, "deliver", l.Stage)
		require.Equal(t, "refused", l.Code)
		require.Equal(t, "acme/all@out", l.Service)
		require.Contains(t, *p.letter(l.ID).Payload, `"state":"B"`)
	}
	require.ElementsMatch(t, []string{"X", "New"}, entities)
}
