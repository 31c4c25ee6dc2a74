package pipeline

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// I1: what is behind a gap is not delivered, and so not committed, before the
// gap is repaired; what was fetched before and other partitions do not wait.
func TestNothingOvertakesARepair(t *testing.T) {
	r := newRepairs(nil)
	handled := make(chan int64, 1)
	handle := r.behind(func(msg *message.Message) error {
		f, _ := transport.FrameOf(msg)
		handled <- f.Last()
		return nil
	})
	of := func(ctx context.Context, topic string, partition int32, offsets ...int64) *message.Message {
		records := make([]transport.Received, len(offsets))
		for i, offset := range offsets {
			records[i].Offset = offset
		}
		return transport.NewMessage(ctx, transport.NewFrame(topic, "", partition, 1, records))
	}
	g := &gap{"changes", 2, 10, make(chan struct{})}
	r.gaps[g] = struct{}{}
	for _, m := range []*message.Message{
		of(t.Context(), "changes", 2, 8, 9), of(t.Context(), "changes", 1, 10), of(t.Context(), "others", 2, 10),
	} {
		require.NoError(t, handle(m))
		<-handled
	}
	held := make(chan error, 1)
	go func() { held <- handle(of(t.Context(), "changes", 2, 9, 10)) }()
	lost, lose := context.WithCancel(t.Context())
	lose()
	require.ErrorIs(t, handle(of(lost, "changes", 2, 11)), errGap, "the partition went to another process")
	require.Empty(t, handled)
	close(g.repaired)
	require.NoError(t, <-held)
	require.EqualValues(t, 10, <-handled)

	unrepaired := &gap{"changes", 3, 0, make(chan struct{})}
	r.gaps[unrepaired] = struct{}{}
	go func() { held <- handle(of(t.Context(), "changes", 3, 5)) }()
	r.close()
	require.ErrorIs(t, <-held, errGap, "the process ends: the change comes again")
	require.Empty(t, handled)
}
