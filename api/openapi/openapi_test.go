package openapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/api/openapi"
	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestMain(m *testing.M) {
	for _, lines := range []string{asLines, "text/csv"} {
		openapi3filter.RegisterBodyDecoder(lines, openapi3filter.FileBodyDecoder)
	}
	for _, kind := range []string{"application/cloudevents+json", "application/cloudevents-batch+json"} {
		openapi3filter.RegisterBodyDecoder(kind, openapi3filter.JSONBodyDecoder)
	}
	harness.Main(m)
}

func load(t *testing.T) *openapi3.T {
	text, err := openapi.JSON()
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	return doc
}

const mainFile = `
api: {listen: "127.0.0.1:0", tokens: tokens.yaml, max_body: 4KiB, rate: 200}
admin: {listen: "127.0.0.1:0"}
sources:
  orders: {http: {max_body: 4KiB}, entity: id, event_id: event}
  plain: {http: {}, entity: id}
customers: [customer.yaml]
`

const customerFile = `
customer: acme
projections:
  all:
    fields: {id: id}
    deliver: {out: {file: {path: out.jsonl}}}
checks:
  crm: {}
`

// world is a real process, whose every exchange is checked against the document.
type world struct {
	t       *testing.T
	doc     *openapi3.T
	address string
	token   string
	seen    map[string][]int // the statuses of each operation
}

func newWorld(t *testing.T) (*world, *harness.Process) {
	p := harness.NewProject(t, map[string]string{"weir.yaml": mainFile, "customer.yaml": customerFile})
	w := &world{t: t, doc: load(t), seen: map[string][]int{}}
	made, err := exec.Command(harness.Binary(t), "token", "new", "--json", "--tenant", "acme", "--may", "ingest,check", "--source", "*").Output()
	require.NoError(t, err)
	w.token = gjson.GetBytes(made, "token").String()
	require.NotEmpty(t, w.token, "%s", made)
	p.Write("tokens.yaml", `{"tokens":[`+gjson.GetBytes(made, "entry").Raw+`]}`)
	run := p.Start("run")
	w.address = "http://" + run.Address("ingest")
	run.Ready(200)
	return w, run
}

// call is one request; path is that of the document, with its parameters filled
// in by place.
type call struct {
	method, path string
	place        []string
	query, kind  string
	body         string
	header       map[string]string
	status       int
	wrong        bool // the request breaks the document, on purpose
}

// do sends a request and checks it, and its answer, against the document.
func (w *world) do(c call) (body string, header http.Header) {
	w.t.Helper()
	url, params := c.path, map[string]string{}
	for i, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(c.path, -1) {
		url = strings.Replace(url, m[0], c.place[i], 1)
		params[m[1]] = c.place[i]
	}
	what := c.method + " " + url
	r, err := http.NewRequestWithContext(w.t.Context(), c.method, w.address+url+"?"+c.query, strings.NewReader(c.body))
	require.NoError(w.t, err)
	if c.kind != "" {
		r.Header.Set("Content-Type", c.kind)
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	for k, v := range c.header {
		r.Header.Set(k, v)
	}
	item := w.doc.Paths.Value(c.path)
	require.NotNil(w.t, item, "%s is not in the document", c.path)
	operation := item.GetOperation(c.method)
	require.NotNil(w.t, operation, what)
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params,
		Route:   &routers.Route{Spec: w.doc, Path: c.path, PathItem: item, Method: c.method, Operation: operation},
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, ExcludeRequestBody: c.body == ""},
	}
	err = openapi3filter.ValidateRequest(w.t.Context(), input)
	if c.wrong {
		require.Error(w.t, err, "%s: the document allows a request that the server refuses", what)
	} else {
		require.NoError(w.t, err, what)
	}
	r.Body = io.NopCloser(strings.NewReader(c.body))
	resp, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer func() { require.NoError(w.t, resp.Body.Close()) }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, c.status, resp.StatusCode, "%s: %s", what, answer)
	require.NoError(w.t, openapi3filter.ValidateResponse(w.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header,
		Body: io.NopCloser(bytes.NewReader(answer)), Options: input.Options,
	}), "%s: %d: %s", what, resp.StatusCode, answer)
	for name, h := range operation.Responses.Status(resp.StatusCode).Value.Headers {
		if h.Value.Required || name == "Request-Id" {
			require.NotEmpty(w.t, resp.Header.Get(name), "%s: header %s", what, name)
		}
	}
	w.seen[operation.OperationID] = append(w.seen[operation.OperationID], resp.StatusCode)
	return string(answer), resp.Header
}

const (
	asJSON  = "application/json"
	asLines = "application/x-ndjson"
	events  = "/v1/sources/{source}/events"
	batch   = "/v1/sources/{source}/events:batch"
)

func post(path, place, body string, status int) call {
	return call{method: "POST", path: path, place: []string{place}, kind: asJSON, body: body, status: status}
}

func with(c call, change func(c *call)) call { change(&c); return c }

func postEvents(w *world) {
	cloud := `{"specversion":"1.0","id":"c1","source":"/shop","type":"order","data":{"id":"B"}}`
	w.do(post(events, "orders", `{"id":"A","event":"e1"}`, 202))
	_, header := w.do(post(events, "orders", `{"event":"e1","id":"A"}`, 202))
	require.Equal(w.t, "true", header.Get("Idempotency-Replayed"))
	w.do(post(events, "orders", `{"id":"B","event":"e1"}`, 422))
	w.do(post(events, "orders", `{"event":"e2"}`, 422))
	w.do(post(events, "nowhere", `{}`, 404))
	w.do(post(events, "orders", `{"id":"`+strings.Repeat("A", 5000)+`"}`, 413))
	w.do(with(post(events, "plain", cloud, 202), func(c *call) { c.kind = "application/cloudevents+json" }))
	w.do(with(post(events, "plain", `{"id":"C"}`, 202), func(c *call) {
		c.header = map[string]string{"Ce-Specversion": "1.0", "Ce-Id": "c2", "Ce-Source": "/shop", "Ce-Type": "order"}
	}))
	w.do(with(post(events, "plain", `{"id":"C"}`, 202), func(c *call) { c.header = map[string]string{"Idempotency-Key": `"k1"`} }))
	w.do(with(post(events, "plain", `{"id":"C"}`, 400), func(c *call) { c.header, c.wrong = map[string]string{"Idempotency-Key": `a"b`}, true }))
	w.do(with(post(events, "plain", `{"id":"C"}`, 202), func(c *call) { c.header = map[string]string{"Idempotency-Key": `"k\"2"`} }))
	w.do(with(post(events, "plain", `id=C`, 415), func(c *call) { c.kind, c.wrong = "application/x-www-form-urlencoded", true }))
	w.do(with(post(events, "plain", "{\"id\":\"D\"}\n{}\n", 207), func(c *call) { c.kind = asLines }))

	w.do(post(batch, "orders", `[{"id":"A","event":"e3"},{"id":"A","event":"e1"}]`, 202))
	w.do(post(batch, "orders", `[{"id":"Z","event":"e3"},{"id":"A","event":"e4"},{}]`, 207))
	w.do(with(post(batch, "plain", "["+cloud+"]", 202), func(c *call) { c.kind = "application/cloudevents-batch+json" }))
	w.do(with(post(batch, "orders", `[]`, 422), func(c *call) { c.wrong = true }))
	w.do(with(post(batch, "orders", "{\"id\":\"A\",\"event\":\"e5\"}\n", 202), func(c *call) { c.kind = asLines }))
}

func decideChecks(w *world) {
	for _, form := range []struct {
		path  string
		place []string
	}{{"/v1/services/{service}/", []string{"acme%2Fcrm@check"}}, {"/v1/services/{customer}/{name}/", []string{"acme", "crm@check"}}} {
		ask := func(verb, body string, status int) string {
			text, _ := w.do(call{method: "POST", path: form.path + verb, place: form.place, kind: asJSON, body: body, status: status})
			return text
		}
		entity := fmt.Sprintf(`"entity":"E%d"`, len(form.place))
		version := gjson.Get(ask("check", `{`+entity+`,"payload":{"a":1},"event_id":"1","sequence":7}`, 200), "version").Raw
		require.True(w.t, gjson.Get(ask("check", `{`+entity+`,"payload":{"a":1},"event_id":"1"}`, 200), "repeated").Bool())
		ask("confirm", `{`+entity+`,"version":`+version+`}`, 200)
		require.Equal(w.t, "duplicate", gjson.Get(ask("check", `{`+entity+`,"payload":{ "a":1 },"sequence":"8"}`, 200), "decision").String())
		require.Equal(w.t, "stale", gjson.Get(ask("check", `{`+entity+`,"payload":2,"sequence":"6"}`, 200), "decision").String())
		rows := ask("check:batch", `[{`+entity+`,"payload":{"a":1}},{"payload":1},{`+entity+`,"hash":"x"}]`, 200)
		require.Equal(w.t, `["duplicate","pass"]`, gjson.Get(rows, "rows.#.decision").Raw)
		ask("confirm", `{`+entity+`,"version":9223372036854775807}`, 409)
		ask("release", `{`+entity+`,"version":`+version+`,"outcome":"refused"}`, 200)
		ask("release", `{`+entity+`,"version":9223372036854775807}`, 409)
		ask("confirm:batch", `[{`+entity+`,"version":`+version+`},{}]`, 200)
		ask("release:batch", `[{`+entity+`,"version":`+version+`},7]`, 200)
		wrong := call{method: "POST", path: form.path + "check", place: form.place, kind: asJSON, wrong: true, status: 422}
		for _, body := range []string{`{` + entity + `}`, `{"payload":1}`, `{` + entity + `,"payload":1,"hash":"x"}`, `{` + entity + `,"payload":1,"more":1}`, `[]`} {
			wrong.body = body
			w.do(wrong)
		}
		for _, verb := range []string{"confirm", "release"} {
			wrong.path = form.path + verb
			for _, version := range []string{"0", "-1", "1.5", "18446744073709551616", `"7"`} {
				wrong.body = `{` + entity + `,"version":` + version + `}`
				w.do(wrong)
			}
		}
		wrong.path = form.path + "check"
		for _, body := range []string{`{"entity":"","payload":1}`, `{"entity":"a\u0000b","payload":1}`, `{` + entity + `,"hash":""}`, `{` + entity + `,"payload":1,"event_id":"\u0000"}`, `{` + entity + `,"payload":1,"sequence":-1}`} {
			wrong.body = body
			w.do(wrong)
		}
		wrong.body, wrong.status = `{"entity":`, 400
		w.do(wrong)
	}
	w.do(post("/v1/services/{service}/check", "acme%2Fother@check", `{"entity":"E","payload":1}`, 404))
	w.do(post("/v1/services/{service}/check", "zest%2Fcrm@check", `{"entity":"E","payload":1}`, 403))
}

func knockWithoutToken(w *world) {
	// Not without a token.
	token := w.token
	w.token = ""
	for path, item := range w.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.Security != nil && len(*operation.Security) == 0 {
				continue
			}
			place := []string{"a", "b"}
			c := call{method: method, path: path, place: place, status: 401}
			w.do(c)
		}
	}
	w.token = token
}

// Every operation of the document is called with valid and invalid requests; every exchange
// matches the document.
func TestExchangesAreAsTheDocumentSays(t *testing.T) {
	w, run := newWorld(t)
	served, _ := w.do(call{method: "GET", path: "/v1/openapi.json", status: 200})
	text, err := openapi.JSON()
	require.NoError(t, err)
	require.Equal(t, w.address, gjson.Get(served, "servers.0.url").String(), "the document says where the server is")
	require.JSONEq(t, strings.Replace(string(text), "http://127.0.0.1:9601", w.address, 1), served)

	postEvents(w)
	decideChecks(w)
	knockWithoutToken(w)
	for path, item := range w.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			require.True(t, slices.ContainsFunc(w.seen[operation.OperationID], func(status int) bool { return status < 300 }),
				"%s %s never worked", method, path)
		}
	}
	status, metrics := run.Get("/metrics")
	require.Equal(t, 200, status)
	sameRoutes(t, w.doc, metrics)
	run.Terminate()
	run.Ok()
}

// sameRoutes compares the document with the routes that the server has, which
// its metrics name.
func sameRoutes(t *testing.T, doc *openapi3.T, metrics string) {
	t.Helper()
	var has, says []string
	for _, m := range regexp.MustCompile(`weir_api_requests_total\{route="([^"]+)"`).FindAllStringSubmatch(metrics, -1) {
		if m[1] != "none" && !slices.Contains(has, m[1]) {
			has = append(has, m[1])
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			says = append(says, method+" "+path)
		}
	}
	require.ElementsMatch(t, says, has)
}

// Every operation has an example, and its schema allows it.
func TestEveryOperationHasAnExample(t *testing.T) {
	doc := load(t)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			var content openapi3.Content
			if operation.RequestBody != nil {
				content = operation.RequestBody.Value.Content
			} else {
				content = operation.Responses.Status(200).Value.Content
			}
			found := false
			for _, media := range content {
				found = found || media.Example != nil
			}
			require.True(t, found, "%s %s", method, path)
		}
	}
}

// A document that says something else than the server does is found.
func TestCheckerFindsDifferences(t *testing.T) {
	doc := load(t)
	item := doc.Paths.Value("/v1/services/{service}/check")
	r := httptest.NewRequest(http.MethodPost, "/v1/services/a/check", strings.NewReader(`{"entity":"E","payload":1}`))
	r.Header.Set("Content-Type", asJSON)
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: map[string]string{"service": "a"},
		Route: &routers.Route{Spec: doc, PathItem: item, Method: http.MethodPost, Operation: item.Post},
	}
	answer := func(status int, body string) error {
		return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
			RequestValidationInput: input, Status: status, Header: http.Header{"Content-Type": {asJSON}},
			Body: io.NopCloser(strings.NewReader(body)), Options: &openapi3filter.Options{IncludeResponseStatus: true},
		})
	}
	require.NoError(t, answer(200, `{"decision":"pass","version":1,"idempotency_key":"k"}`))
	require.Error(t, answer(200, `{"decision":"maybe","version":1}`))
	require.Error(t, answer(200, `{"decision":"pass"}`))
	require.Error(t, answer(200, `{"decision":"pass","version":1,"more":1}`))
	require.Error(t, answer(418, `{}`))
}
