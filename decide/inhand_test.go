package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
)

func TestARecordThatIsEvaluatedForLongIsNamed(t *testing.T) {
	d := &Decider{workers: []*worker{{}, {}}}
	now := time.Now()
	_, long := d.LongInHand(now.Add(time.Hour))
	require.False(t, long, "nothing is in hand")
	d.workers[1].inHand.begin(&record{Record: change.Record{Entity: "B-007"}, partition: 3, offset: 41})
	_, long = d.LongInHand(now)
	require.False(t, long)
	r, long := d.LongInHand(now.Add(time.Minute))
	require.True(t, long)
	require.Equal(t, `the record at offset 41 of inbox partition 3, of entity "B-007", is being evaluated`, r.String())
	d.workers[1].inHand.end()
	_, long = d.LongInHand(now.Add(time.Minute))
	require.False(t, long)
}
