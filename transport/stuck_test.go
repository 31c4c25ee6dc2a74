package transport_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/seed-86dfc502/weir/transport"
)

// Who reads on at the oldest record of a partition needs no other partition for it.
func TestAReaderGoesOnBesideAPartitionWithoutALeader(t *testing.T) {
	c, away := leaderless(t, 1)
	topic := c.topic(t, "topic", 2)
	lined(t, c.producer(t, transport.ProducerConfig{}), topic, 0, numbers(0, 5)...)
	var cut kadm.Offsets
	cut.AddOffset(topic, 0, 3, -1)
	_, err := kadm.NewClient(rawClient(t, c)).DeleteRecords(t.Context(), cut)
	require.NoError(t, err)
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := transport.NewReader(c.cfg, topic, 0)
	defer r.Close()
	records, err := r.Read(ctx, 0, 0)
	require.NoError(t, err)
	require.EqualValues(t, 3, records[0].Offset)
}
