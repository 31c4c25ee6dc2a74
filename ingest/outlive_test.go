package ingest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// TestNothingOfAnEventOutlivesIt: the texts of a record are no parts of the event's bytes, nor
// of trees that were released during its extraction. A payload may be a part of the event's
// value alone, which the frame holds until it is appended.
func TestNothingOfAnEventOutlivesIt(t *testing.T) {
	plain := shape(t)
	plain.Payload, plain.Strip = "d", nil
	path := shape(t)
	path.Payload = "d|@values|0" // which is no value of the event's own tree
	for name, s := range map[string]ingest.Extractor{"stripped": shape(t), "plain": plain, "by path": path} {
		t.Run(name, func(t *testing.T) {
			const events = 50
			var values [][]byte
			var frame []transport.Received
			for i := range events {
				filler := ""
				if i%2 == 0 {
					filler = `,"updated_at":1,"trace_id":"x"`
				}
				value := fmt.Appendf(nil, `{"m":{"id":"B-%d","event":"\u0065%d","seq":"%d"},"d":{"a":{"n":%d,"text":"\u0041 %d"}%s}}`, i, i, i, i, i, filler)
				values = append(values, value)
				frame = append(frame, transport.Received{Key: fmt.Append(nil, "k", i), Value: value, Offset: int64(i), Time: time.UnixMilli(1)})
			}
			f := transport.NewFrame("topic", "T1", 3, 0, frame)
			var kept []change.Record
			var payloads []string
			for i := range events {
				records, letter := s.Extract(f, i)
				require.Nil(t, letter)
				require.Len(t, records, 1)
				kept = append(kept, records...)
				payloads = append(payloads, strings.Clone(string(kept[i].Event.Payload)))
			}
			for range 200 { // others use what was returned to the pools
				tree, err := canonicaltree.Parse([]byte(`{"zz":[` + strings.Repeat(`"yyyyyyyyyyyyyyyy",`, 20) + `1]}`))
				require.NoError(t, err)
				b := canonicaltree.NewBuilder(16)
				b.Value(tree.Root())
				built, err := b.Tree()
				require.NoError(t, err)
				built.Release()
				tree.Release()
			}
			for i, r := range kept {
				require.Equal(t, payloads[i], string(r.Event.Payload))
				for k := range values[i] {
					values[i][k] = 0xDB
				}
				require.Equal(t, fmt.Sprint("B-", i, " e", i, " ", i), r.Entity+" "+r.Event.EventID+" "+r.Event.Sequence, "a text is a part of the event's bytes")
			}
		})
	}
}
