package deliver_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// again hands one change in as the next of the topic, one that may have been in
// hand before, and waits until it is done.
func (f *fixture) again(c change.Change) { f.next(c, true, "") }

func (f *fixture) next(c change.Change, again bool, header string) {
	m := message.NewMessage("", c.AppendBinary(nil))
	if header != "" {
		m.Metadata.Set(header, "1")
	}
	m.SetContext(transport.WithPosition(context.Background(), transport.Position{
		Topic: "changes", TopicID: "id", Offset: int64(f.seq), Claim: 1, Seq: f.seq, Again: again,
	}))
	f.seq++
	require.NoError(f.t, f.d.Handle(m))
}

// I5: a process took two changes of an entity in one batch, sent the newer one
// and died before the confirm. When both come again one by one, the older one
// must not go out behind the newer.
func TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash(t *testing.T) {
	f := newFixture(t, state)
	older, newer := f.change("a", 1), f.change("a", 2)
	f.again(older)
	require.Empty(t, f.sink.has(), "the newer one may be there already")
	f.again(newer)
	require.Equal(t, []string{name(newer)}, f.sink.has())
	require.Equal(t, newer.Version, f.row("a").DeliveredVersion)
}

// I5: the newer change was sent by a process that died, the newest is decided.
// What take-over publishes once more stands behind the end that this claim knew.
func TestAChangeFromTheOutboxDoesNotComeBehindTheNewerOne(t *testing.T) {
	f := newFixture(t, state)
	sent, newest := f.change("a", 1), f.change("a", 2)
	f.next(sent, false, change.AgainHeader)
	require.Empty(t, f.sink.has())
	f.next(newest, false, "")
	require.Equal(t, []string{name(newest)}, f.sink.has())
}

// A log sink gets every change, and a change that is new goes out although a
// newer one is decided: an entity that changes all the time is not kept back.
func TestChangesThatAreNoRepetitionGoOut(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100})
	older, newer := f.change("a", 1), f.change("a", 2)
	f.again(older)
	f.again(newer)
	require.Equal(t, []string{name(older), name(newer)}, f.sink.has())

	f = newFixture(t, state)
	older, newer = f.change("a", 1), f.change("a", 2)
	f.done(f.hand(older))
	f.done(f.hand(newer))
	require.Equal(t, []string{name(older), name(newer)}, f.sink.has())
}
