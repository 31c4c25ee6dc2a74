package ingest_test

import (
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// Inputs that public bug reports of other readers name, as records of Kafka.
func TestInputsOfPublicReports(t *testing.T) {
	header := func(name, value string) transport.Header { return transport.Header{Key: name, Value: []byte(value)} }
	for name, c := range map[string]struct {
		source formatCase
		record transport.Received
		want   string
	}{
		"an empty value is no null value (librdkafka 1386)": {
			formatCase{Entity: "key"}, transport.Received{Key: []byte("A"), Value: []byte{}}, "dead letter bad_json"},
		"an empty key is no key (librdkafka 1386)": {
			formatCase{Entity: "key"}, transport.Received{Key: []byte{}, Value: []byte(`{}`)}, "dead letter no_entity"},
		"of headers of one name the last counts (chutney-legacy 296)": {
			formatCase{Entity: "id", EventID: "header:e"},
			transport.Received{Value: []byte(`{"id":"A"}`), Headers: []transport.Header{header("e", "1"), header("e", "2")}}, "event id 2"},
		"a header may be null (vertx-kafka-client 313, druid 16177)": {
			formatCase{Entity: "id", EventID: "header:e"},
			transport.Received{Value: []byte(`{"id":"A"}`), Headers: []transport.Header{{Key: "e"}}}, "upsert A\n{"},
		"line separators of Unicode stand in a text (OpenViking 3984, agent-sweep 228)": {
			formatCase{Entity: "id"}, transport.Received{Value: []byte("{\"id\":\"A\",\"t\":\"a\u2028b\u2029c\u0085d\"}")}, "a\u2028b\u2029c\u0085d"},
		"a carriage return ends no value (powersync-native 39, JSON.jl 21)": {
			formatCase{Entity: "id"}, transport.Received{Value: []byte("{\"id\":\"A\"\r\n}\r")}, "upsert A"},
		"BIGINT UNSIGNED keeps its digits (maxwell 2264, 1864)": {
			formatCase{Format: ingest.Maxwell, Entity: "id"},
			transport.Received{Value: []byte(`{"type":"insert","data":{"id":18446744073709551615,"n":2147483648}}`)}, "upsert 18446744073709551615\n{\"id\":18446744073709551615,\"n\":2147483648}"},
		"an id is one as a number and as text": {
			formatCase{Format: ingest.Maxwell, Entity: "id"},
			transport.Received{Value: []byte(`{"type":"update","data":{"id":"7","n":1},"old":{"id":7,"n":null}}`)}, "upsert 7"},
		"a flattened tombstone has nothing but its key (kafka-connect-jdbc 1421)": {
			formatCase{Entity: "id"}, transport.Received{Key: []byte("A")}, "delete A"},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.source.shape(t)
			records, letter := s.Extract(frame(c.record), 0)
			got := outcomeOf(change.Record{}, letter)
			if len(records) > 0 {
				require.Len(t, records, 1)
				got = outcomeOf(records[0], letter)
			}
			require.Contains(t, got, c.want)
		})
	}
}
