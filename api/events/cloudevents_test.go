package events_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/tests/vectors"
	"github.com/stretchr/testify/require"
)

const cloudType = "application/cloudevents+json"

func attributes(pairs ...string) http.Header {
	h := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"7"}, "Ce-Source": {"/lab/1"}, "Ce-Type": {"measured"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// The three content modes of the HTTP binding are one event.
func TestCloudEventModes(t *testing.T) {
	w := newWorld(t, options{})
	first := w.send(request{path: "plain/events", header: attributes(), body: `{"id":"B","n":1}`})
	require.Equal(t, 202, first.status, first.body)
	require.Equal(t, "/lab/1 7", w.result(first).EventID, "source and id together are unique")
	structured := `{"specversion":"1.0","id":"7","source":"/lab/1","type":"measured","time":"2026-01-02T03:04:05Z","data":{ "n":1, "id":"B"}}`
	for name, q := range map[string]request{
		"structured":       {path: "plain/events", kind: cloudType, body: structured},
		"attributes last":  {path: "plain/events", kind: cloudType, body: `{"data":{"id":"B","n":1},"type":"measured","source":"/lab/1","id":"7","specversion":"1.0"}`},
		"base64":           {path: "plain/events", kind: cloudType, body: strings.Replace(structured, `"data":{ "n":1, "id":"B"}`, `"data_base64":"eyJpZCI6IkIiLCJuIjoxfQ=="`, 1)},
		"another JSON":     {path: "plain/events", kind: "application/vnd.lab+json", header: attributes(), body: `{"id":"B","n":1}`},
		"no type of data":  {path: "plain/events", kind: "none", header: attributes(), body: `{"id":"B","n":1}`},
		"percent encoding": {path: "plain/events", header: attributes("Ce-Id", "%37", "Ce-Source", `"/l%61b/1"`), body: `{"id":"B","n":1}`},
	} {
		again := w.send(q)
		require.Equal(t, first.body, again.body, "%s", name)
		require.Equal(t, "true", again.header.Get(events.ReplayedHeader), name)
	}
	batch := w.send(request{path: "plain/events", kind: "application/cloudevents-batch+json", body: "[" + structured + "," + strings.Replace(structured, `"7"`, `"8"`, 1) + `,{"specversion":"1.0"}]`})
	require.Equal(t, 207, batch.status, batch.body)
	require.Equal(t, []events.Status{events.Duplicate, events.Accepted, events.Invalid}, statuses(w.rows(batch)))
	require.Contains(t, w.rows(batch)[2].Reason, "bad_cloudevent")
	require.Len(t, w.inbox(), 2)
	require.Equal(t, 202, w.send(request{path: "plain/events:batch", kind: "application/cloudevents-batch+json", body: "[" + structured + "]"}).status)
	require.Equal(t, 415, w.send(request{path: "plain/events:batch", kind: cloudType, body: structured}).status)
}

// Locators see attributes as they see the headers of Kafka's binding.
func TestCloudEventAttributesAreMetadata(t *testing.T) {
	w := newWorld(t, options{shape: func(s *ingest.Extractor) {
		s.Entity, s.EventID = ingest.Locator{Header: "ce_subject"}, ingest.Locator{Header: "ce_id"}
		s.Operation, s.Sequence = ingest.Locator{Header: "ce_operation"}, ingest.Locator{Header: "ce_rank"}
	}})
	a := w.send(request{kind: cloudType, body: `{"specversion":"1.0","id":"7","source":"urn:lab","type":"t","subject":"B","rank":12,"data":{"n":1.50}}`})
	require.Equal(t, 202, a.status, a.body)
	a = w.send(request{kind: cloudType, body: `{"specversion":"1.0","id":"8","source":"urn:lab","type":"t","subject":"B","operation":"delete"}`})
	require.Equal(t, 202, a.status, a.body)
	got := w.inbox()
	require.Equal(t, change.Event{
		Origin: change.Origin{Source: "orders"}, EventID: "7", Sequence: "12", Op: change.Upsert, Claim: got[0].Claim, Use: got[0].Use, Entity: "B", Payload: []byte(`{"n":1.50}`),
	}, got[0], "numbers keep their literals")
	require.Equal(t, change.Delete, got[1].Op)
	a = w.send(request{kind: cloudType, body: `{"specversion":"1.0","id":"9","source":"urn:lab","type":"t","subject":"B"}`})
	require.Equal(t, 422, a.status)
	require.Equal(t, "no_payload", w.problem(a).Code, "nothing is deleted by an event that only forgot its data")
}

// data is JSON under any JSON media type: a string of digits is no number, a string like an
// object no object.
func TestCloudEventDataIsJSONByItsSuffixToo(t *testing.T) {
	w := newWorld(t, options{shape: func(s *ingest.Extractor) {
		s.Entity, s.EventID = ingest.Locator{Header: "ce_subject"}, ingest.Locator{Header: "ce_id"}
	}})
	for n, c := range []struct{ kind, data string }{
		{"application/json", `"12"`}, {"application/vnd.lab+json", `"12"`}, {"application/vnd.lab+json", `"{\"id\":\"another\"}"`}, {"text/vnd.lab+json", `"not json at all"`},
		{"application/vnd.lab+json", `{"n":1.50}`},
	} {
		a := w.send(request{kind: cloudType, body: fmt.Sprintf(`{"specversion":"1.0","id":"%d","source":"urn:lab","type":"t","subject":"B","datacontenttype":%q,"data":%s}`, n, c.kind, c.data)})
		require.Equal(t, 202, a.status, a.body)
		require.Equal(t, c.data, string(w.inbox()[n].Payload), c.kind)
	}
}

// The id alone names an event of another source.
func TestCloudEventIdentity(t *testing.T) {
	w := newWorld(t, options{})
	body := `{"id":"B"}`
	for _, pairs := range [][]string{nil, {"Ce-Id", "8"}, {"Ce-Source", "/lab/2"}, {"Ce-Source", "/lab/1", "Ce-Id", "7 8"}, {"Ce-Source", "/lab/17", "Ce-Id", "8"}} {
		a := w.send(request{path: "plain/events", header: attributes(pairs...), body: body})
		require.Equal(t, 202, a.status, a.body)
		require.Empty(t, a.header.Get(events.ReplayedHeader), "%v", pairs)
	}
	require.Len(t, w.inbox(), 5)
	require.Equal(t, 202, w.send(request{header: attributes(), body: `{"id":"B","event":"e1"}`}).status)
	require.Equal(t, "e1", w.inbox()[5].EventID, "a configured event id goes before")
}

// All rows of a snapshot have one id in CloudEvents of Debezium 3.6.3 (PostgreSQL). They are
// events of different entities; another event of the same entity is a conflict that says
// how to resolve it.
func TestCloudEventsOfASnapshotShareAnID(t *testing.T) {
	w := newWorld(t, options{})
	row := func(id int, state string) request {
		return request{path: "plain/events", header: attributes("Ce-Id", `name:shop;lsn:27400904;txId:794;sequence:[null,\"27400904\"]`,
			"Ce-Source", "/debezium/postgresql/shop", "Ce-Type", "io.debezium.connector.postgresql.DataChangeEvent", "Ce-Iodebeziumop", "r"),
			body: fmt.Sprintf(`{"id":%d,"state":%q}`, id, state)}
	}
	require.Equal(t, 202, w.send(row(1, "new")).status)
	require.Equal(t, 202, w.send(row(2, "new")).status)
	again := w.send(row(2, "new"))
	require.Equal(t, []any{202, "true"}, []any{again.status, again.header.Get(events.ReplayedHeader)})
	require.Len(t, w.inbox(), 2)

	other := w.send(row(2, "sent"))
	require.Equal(t, 422, other.status)
	require.Contains(t, other.body, "set event_id of the source")
	batch := w.send(request{path: "plain/events:batch", kind: "application/cloudevents-batch+json", body: `[{"specversion":"1.0","id":"7","source":"/a","type":"t","data":{"id":"1"}},` +
		`{"specversion":"1.0","id":"7","source":"/a","type":"t","data":{"id":"2"}},{"specversion":"1.0","id":"7","source":"/a","type":"t","data":{"id":"2","n":1}}]`})
	rows := w.rows(batch)
	require.Equal(t, []events.Status{events.Accepted, events.Accepted, events.Conflicting}, []events.Status{rows[0].Status, rows[1].Status, rows[2].Status})
	require.Contains(t, rows[2].Reason, "set event_id of the source")
}

// The longest id and entity have a key that the ledger keeps.
func TestCloudEventWithLongNames(t *testing.T) {
	w := newWorld(t, options{shape: func(s *ingest.Extractor) { s.MaxEntity = change.MaxEntity }})
	q := request{path: "plain/events", header: attributes("Ce-Id", strings.Repeat("i", 1000)), body: `{"id":"` + strings.Repeat("B", change.MaxEntity) + `"}`}
	for _, replayed := range []string{"", "true"} {
		a := w.send(q)
		require.Equal(t, []any{202, replayed}, []any{a.status, a.header.Get(events.ReplayedHeader)}, a.body)
	}
}

// A refused attribute comes with the cause: a name with capitals, as Debezium 3.6.3's
// CloudEventsConverter writes it, and a header in Latin-1, as of the Java SDK 4.0.1, which does
// not percent-encode.
func TestAnswersNameTheCauseOfAWrongAttribute(t *testing.T) {
	w := newWorld(t, options{})
	for body, cause := range map[string]string{
		`{"specversion":"1.0","id":"7","source":"/a","type":"t","iodebeziumtxId":"794","data":{"id":"1"}}`: "has capitals",
		`{"specversion":"1.0","id":"7","source":"/a","type":"t","my_ext":"794","data":{"id":"1"}}`:         "not of lower-case letters",
	} {
		a := w.send(request{path: "plain/events", kind: cloudType, body: body})
		require.Equal(t, 422, a.status)
		require.Contains(t, a.body, cause)
	}
	latin := w.send(request{path: "plain/events", header: attributes("Ce-Subject", "Zo\xeb"), body: `{"id":"B"}`})
	require.Equal(t, 422, latin.status)
	require.Contains(t, latin.body, "percent-encode")
	require.Equal(t, 202, w.send(request{path: "plain/events", header: attributes("Ce-Subject", `Zoë 100% \"q\"`), body: `{"id":"B"}`}).status)
}

func TestWrongCloudEvents(t *testing.T) {
	w := newWorld(t, options{})
	good := `{"specversion":"1.0","id":"7","source":"/lab","type":"t","data":{"id":"B"}}`
	replaced := func(old, with string) request {
		require.Contains(t, good, old)
		return request{path: "plain/events", kind: cloudType, body: strings.Replace(good, old, with, 1)}
	}
	headers := func(pairs ...string) request {
		return request{path: "plain/events", header: attributes(pairs...), body: `{"id":"B"}`}
	}
	for name, q := range map[string]request{
		"no JSON":                {path: "plain/events", kind: cloudType, body: `{`},
		"no object":              {path: "plain/events", kind: cloudType, body: `[]`},
		"member twice":           replaced(`"id":"7"`, `"id":"7","id":"8"`),
		"no version":             replaced(`"specversion":"1.0",`, ``),
		"older version":          replaced(`1.0`, `0.3`),
		"no id":                  replaced(`"id":"7",`, ``),
		"empty id":               replaced(`"7"`, `""`),
		"id is a number":         replaced(`"7"`, `7`),
		"no source":              replaced(`"source":"/lab",`, ``),
		"source with a space":    replaced(`/lab`, `/la b`),
		"no type":                replaced(`"type":"t",`, ``),
		"time":                   replaced(`"type"`, `"time":"yesterday","type"`),
		"schema":                 replaced(`"type"`, `"dataschema":"nowhere","type"`),
		"data twice":             replaced(`"data"`, `"data_base64":"e30=","data"`),
		"base64 is a number":     replaced(`"data":{"id":"B"}`, `"data_base64":1`),
		"base64 is null":         replaced(`"data":{"id":"B"}`, `"data_base64":null`),
		"base64 is wrong":        replaced(`"data":{"id":"B"}`, `"data_base64":"!"`),
		"data is no JSON":        replaced(`"data"`, `"datacontenttype":"text/xml","data"`),
		"extension's name":       replaced(`"type"`, `"my_ext":"x","type"`),
		"extension in capitals":  replaced(`"type"`, `"Ext":"x","type"`),
		"no name":                replaced(`"type"`, `"":"x","type"`),
		"extension is an object": replaced(`"type"`, `"ext":{},"type"`),
		"extension is 1.5":       replaced(`"type"`, `"ext":1.5,"type"`),
		"extension is 2^31":      replaced(`"type"`, `"ext":2147483648,"type"`),
		"NUL":                    replaced(`"7"`, `"\u0000"`),
		"no data":                replaced(`,"data":{"id":"B"}`, ``),
		"null data":              replaced(`{"id":"B"}`, `null`),
		"header version":         headers("Ce-Specversion", "0.3"),
		"header id":              headers("Ce-Id", ""),
		"header time":            headers("Ce-Time", "x"),
		"header name":            headers("Ce-My_ext", "x"),
		"header not UTF-8":       headers("Ce-Subject", "%C0%A0"),
		"header NUL":             headers("Ce-Subject", "%00"),
		"header twice":           {path: "plain/events", header: http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"a", "b"}, "Ce-Source": {"/"}, "Ce-Type": {"t"}}, body: `{"id":"B"}`},
		"header data":            {path: "plain/events", header: attributes(), body: `{"id":"B"`},
		"header no data":         {path: "plain/events", header: attributes()},
	} {
		a := w.send(q)
		status := 422
		if w.problem(a).Code == "bad_json" {
			status = 400
		}
		require.Equal(t, status, a.status, "%s: %s", name, a.body)
		require.Equal(t, "urn:weir:problem:invalid-event", w.problem(a).Type, name)
	}
	require.Empty(t, w.inbox())
	require.Zero(t, w.ledger.keys())
	many := `"a0":1`
	for i := range 100 {
		many += fmt.Sprintf(`,"a%d":1`, i+1)
	}
	require.Equal(t, 422, w.send(replaced(`"type"`, many+`,"type"`)).status, "attributes are bounded")
}

// The examples of the specification and the files of the Java SDK's tests, where they are.
// Events whose data is no JSON are refused, and so are names and numbers that the
// specification does not allow. TestCloudEventModes and TestWrongCloudEvents have the same
// classes of input.
func TestPublishedCloudEvents(t *testing.T) {
	refused := map[string]bool{
		"fail_numeric_decimal.json": true, "fail_numeric_long.json": true, "json_data_with_ext_invalid.json": true, "json_data_with_ext_upper_case.json": true,
		"base64_text_data.json": true, "base64_xml_data.json": true, "text_data.json": true, "xml_data.json": true,
	}
	for _, file := range append(vectors.Published(t, "cloudevents/sdk-java-v1/*.json"), vectors.Published(t, "cloudevents/spec/*.json")...) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var want map[string]any
		if json.Unmarshal(text, &want) != nil {
			continue // a batch
		}
		value, meta, err := events.StructuredEvent(text)
		kind, _ := want["datacontenttype"].(string)
		if refused[filepath.Base(file)] || kind != "" && !strings.Contains(kind, "json") {
			require.Error(t, err, file)
			continue
		}
		require.NoError(t, err, file)
		for name, v := range want {
			switch {
			case name == "data":
				data, err := json.Marshal(v)
				require.NoError(t, err)
				require.JSONEq(t, string(data), string(value), file)
			case name == "data_base64":
				require.Equal(t, v, base64.StdEncoding.EncodeToString(value), file)
			case name == "time":
				at, err := time.Parse(time.RFC3339Nano, v.(string))
				require.NoError(t, err)
				require.Equal(t, at.UTC().Format(time.RFC3339Nano), meta["ce_time"], file)
			case v == nil:
				require.NotContains(t, meta, "ce_"+name, file)
			default:
				require.Equal(t, fmt.Sprint(v), meta["ce_"+name], file)
			}
		}
	}
}

// The example of the conformance suite of the HTTP binding.
func TestBinaryCloudEventOfTheSuite(t *testing.T) {
	for _, kind := range []string{"application/json", "application/json; charset=utf-8"} {
		body := `{"message": "Hello World!"}`
		value, meta, err := events.BinaryEvent(http.Header{
			"Ce-Specversion": {"1.0"}, "Ce-Type": {"com.example.someevent"}, "Ce-Time": {"2018-04-05T03:56:24Z"}, "Ce-Id": {"1234-1234-1234"},
			"Ce-Source": {"/mycontext/subcontext"}, "Content-Type": {kind}, "Host": {"example.com"},
		}, []byte(body))
		require.NoError(t, err)
		require.Equal(t, body, string(value))
		require.Equal(t, message.Metadata{
			"ce_specversion": "1.0", "ce_type": "com.example.someevent", "ce_time": "2018-04-05T03:56:24Z", "ce_id": "1234-1234-1234",
			"ce_source": "/mycontext/subcontext", "ce_datacontenttype": kind, "ce_source id": "/mycontext/subcontext 1234-1234-1234",
		}, meta)
	}
}

// A decoded event has an identity and attributes that the store and locators can hold.
func soundCloudEvent(t *testing.T, value []byte, meta message.Metadata) {
	require.NotEmpty(t, meta["ce_id"])
	require.NotEmpty(t, meta["ce_source"])
	require.NotContains(t, meta["ce_source"], " ")
	require.NotEmpty(t, meta["ce_type"])
	for name, text := range meta {
		require.NotContains(t, text, "\x00", name)
	}
	if value != nil {
		require.NotEmpty(t, strings.TrimSpace(string(value)))
	}
}

func FuzzStructuredCloudEvent(f *testing.F) {
	for _, seed := range []string{
		`{"specversion":"1.0","id":"7","source":"/lab","type":"t","data":{"id":"B"}}`,
		`{"data_base64":"e30=","specversion":"1.0","id":"7","source":"/lab","type":"t","time":"2026-01-02T03:04:05.678Z"}`,
		`{"specversion":"1.0","data_base64":1,"id":"7"}`, `{"":1,"specversion":"1.0"}`, `[]`, `{"specversion":"1.0","ext":true,"subject":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		value, meta, err := events.StructuredEvent(text)
		if err != nil {
			require.NotNil(t, ingest.RefusalOf(err))
			return
		}
		soundCloudEvent(t, value, meta)
	})
}

func FuzzBinaryCloudEvent(f *testing.F) {
	f.Add("7", "/lab", "t", "2026-01-02T03:04:05Z", "x", []byte(`{"id":"B"}`))
	f.Add("%37%", `"a\"b"`, "%", "", "%C0%A0", []byte(`null`))
	f.Fuzz(func(t *testing.T, id, source, kind, time, ext string, body []byte) {
		h := http.Header{
			"Content-Type": {"application/json"}, "Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {source}, "Ce-Type": {kind}, "Ce-Ext": {ext},
		}
		if time != "" {
			h.Set("Ce-Time", time)
		}
		value, meta, err := events.BinaryEvent(h, body)
		if err != nil {
			require.NotNil(t, ingest.RefusalOf(err))
			return
		}
		soundCloudEvent(t, value, meta)
	})
}
