package checkhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

const path = "acme%2Fcrm@check/"

// A caller's whole way, under both forms of the service's name.
func TestCheckConfirmRelease(t *testing.T) {
	for _, path := range []string{path, "acme/crm@check/", "acme/crm%40check/"} {
		t.Run(path, func(t *testing.T) {
			w := newWorld(t).start()
			a := w.post(path+"check", `{"entity":"banana-1","payload":{"ripeness":1},"event_id":"e1"}`)
			require.Equal(t, http.StatusOK, a.status, a.body)
			assert.Equal(t, "application/json", a.header.Get("Content-Type"))
			assert.Equal(t, "pass", a.member("decision"))
			assert.Len(t, a.member("idempotency_key"), 32)
			assert.Nil(t, a.member("repeated"))
			again := w.post(path+"check", `{"event_id":"e1","payload":{"ripeness": 1},"entity":"banana-1"}`)
			assert.Equal(t, strings.Replace(a.body, "}", `,"repeated":true}`, 1), again.body)

			c := w.post(path+"confirm", `{"entity":"banana-1","version":`+a.version()+`}`)
			require.Equal(t, `{"confirmed_version":`+a.version()+"}\n", c.body)
			duplicate := w.post(path+"check", `{"entity":"banana-1","payload":{"ripeness":1}}`)
			assert.Equal(t, `{"decision":"duplicate","version":`+a.version()+"}\n", duplicate.body)

			b := w.post(path+"check", `{"entity":"banana-1","payload":{"ripeness":2},"sequence":7}`)
			assert.Equal(t, "pass", b.member("decision"))
			stale := w.post(path+"check", `{"entity":"banana-1","payload":{"ripeness":3},"sequence":"6"}`)
			assert.Equal(t, `{"decision":"stale","version":`+b.version()+"}\n", stale.body)
			r := w.post(path+"release", `{"entity":"banana-1","version":`+b.version()+`,"outcome":"refused"}`)
			assert.Equal(t, `{"released":true,"version":`+b.version()+`,"state":"delivered"}`+"\n", r.body)
			late := w.post(path+"release", `{"entity":"banana-1","version":`+a.version()+`}`)
			assert.Equal(t, `{"released":false,"version":`+b.version()+"}\n", late.body)
			r = w.post(path+"release", `{"entity":"banana-1","version":`+b.version()+`}`)
			assert.Equal(t, `{"released":true,"version":`+b.version()+`,"state":"unknown"}`+"\n", r.body)
			assert.Equal(t, "pass", w.post(path+"check", `{"entity":"banana-1","payload":{"ripeness":1}}`).member("decision"))
		})
	}
}

// Hashes by Weir and by the caller are never compared with each other; numbers are compared
// by the service's configuration.
func TestContents(t *testing.T) {
	w := newWorld(t).start()
	ask := func(path, content string) any {
		a := w.post(path, `{"entity":"e",`+content+`}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
		return a.member("repeated")
	}
	assert.Nil(t, ask(path+"check", `"payload":"x"`))
	assert.Nil(t, ask(path+"check", `"hash":"x"`), "another content")
	assert.Equal(t, true, ask(path+"check", `"hash":"\u0078"`))
	assert.Nil(t, ask(path+"check", `"payload":1`))
	assert.Nil(t, ask(path+"check", `"payload":1.0`), "literal")
	assert.Nil(t, ask(path+"check", `"payload":null`))
	assert.Equal(t, true, ask(path+"check", `"payload":null`))
	assert.Nil(t, ask("acme/money@check/check", `"payload":1`))
	assert.Equal(t, true, ask("acme/money@check/check", `"payload":1.0`), "decimal")
}

// Batches have an answer for each row, in their order; a wrong row does not affect the others.
func TestBatches(t *testing.T) {
	w := newWorld(t).start()
	lines := "{\"entity\":\"a\",\"payload\":1}\n\n{\"entity\":\"b\",\"payload\":1}\r\n{\"entity\":\"a\",\"payload\":1}\n{\"entity\":\"a\",\"payload\":1,\"more\":1}\n{\"entity\nnull"
	for form, body := range map[string]string{
		"application/x-ndjson": lines,
		"application/json":     `[{"entity":"a","payload":1},{"entity":"b","payload":1},{"entity":"a","payload":1},{"entity":"a","payload":1,"more":1},[],null]`,
	} {
		rows := w.post(path+"check:batch", body, "Content-Type", form).rows()
		require.Len(t, rows, 6, form)
		for i, r := range rows {
			assert.EqualValues(t, i, r["index"])
			if i < 3 {
				assert.Equal(t, "pass", r["decision"], "%s %d", form, i)
				continue
			}
			status := http.StatusUnprocessableEntity
			if i == 4 && form == "application/x-ndjson" { // no JSON
				status = http.StatusBadRequest
			}
			assert.EqualValues(t, status, r["error"].(map[string]any)["status"])
			assert.NotContains(t, r, "decision")
		}
		assert.Equal(t, rows[0]["version"], rows[2]["version"])
		assert.Equal(t, true, rows[2]["repeated"])
	}
	v := w.post(path+"check", `{"entity":"a","payload":2}`).version()
	rows := w.post(path+"confirm:batch", `[{"entity":"a","version":`+v+`},{"entity":"b","version":9007199254740993},{"version":1}]`).rows()
	require.Len(t, rows, 3)
	assert.Contains(t, rows[0], "confirmed_version")
	assert.EqualValues(t, http.StatusConflict, rows[1]["error"].(map[string]any)["status"])
	assert.EqualValues(t, http.StatusUnprocessableEntity, rows[2]["error"].(map[string]any)["status"])
	rows = w.post(path+"release:batch", `[{"entity":"a","version":`+v+`},{"entity":"a","version":1}]`).rows()
	assert.Equal(t, false, rows[0]["released"], "it is confirmed")
	assert.Equal(t, false, rows[1]["released"])
}

// The answer to a wrong request does not quote it, and no part of it is decided.
func TestRefusals(t *testing.T) {
	w := newWorld(t).start()
	long := strings.Repeat("x", 65)
	for _, c := range []struct {
		path, body string
		status     int
	}{
		{"check", ``, 400},
		{"check", `{"entity":"secret"`, 400},
		{"check", `{"entity":"e","payload":1}{}`, 400},
		{"check", `{"entity":"e","entity":"e","payload":1}`, 400},
		{"check", `{"entity":"e","payload":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, 400},
		{"check", `{"entity":"e","payload":"` + strings.Repeat("x", maxBody) + `"}`, 413},
		{"check", `[]`, 422},
		{"check", `"secret"`, 422},
		{"check", `{"entity":"e","payload":1,"secret":2}`, 422},
		{"check", `{"payload":1}`, 422},
		{"check", `{"entity":"","payload":1}`, 422},
		{"check", `{"entity":7,"payload":1}`, 422},
		{"check", `{"entity":"` + long + `","payload":1}`, 422},
		{"check", `{"entity":"a\u0000b","payload":1}`, 422},
		{"check", `{"entity":"e"}`, 422},
		{"check", `{"entity":"e","payload":1,"hash":"secret"}`, 422},
		{"check", `{"entity":"e","hash":""}`, 422},
		{"check", `{"entity":"e","payload":1,"event_id":""}`, 422},
		{"check", `{"entity":"e","payload":1,"event_id":5}`, 422},
		{"check", `{"entity":"e","payload":1,"sequence":1.5}`, 422},
		{"check", `{"entity":"e","payload":1,"sequence":-1}`, 422},
		{"check", `{"entity":"e","payload":1,"sequence":null}`, 422},
		{"confirm", `{"entity":"e"}`, 422},
		{"confirm", `{"version":1}`, 422},
		{"confirm", `{"entity":"e","version":0}`, 422},
		{"confirm", `{"entity":"e","version":"1"}`, 422},
		{"confirm", `{"entity":"e","version":1.0}`, 422},
		{"confirm", `{"entity":"e","version":18446744073709551615}`, 422},
		{"confirm", `{"entity":"e","version":1}`, 409},
		{"release", `{"entity":"e","version":1,"outcome":"maybe"}`, 422},
		{"release", `{"entity":"e","version":1,"outcome":null}`, 422},
		{"release", `{"entity":"e","version":1}`, 409},
		{"check:batch", `{"entity":"secret","payload":1}`, 422},
		{"check:batch", `[]`, 422},
		{"check:batch", `[{]`, 400},
		{"check:batch", `[` + strings.Repeat("1,", 10) + `1]`, 413},
	} {
		a := w.post(path+c.path, c.body)
		name := c.path + " " + c.body[:min(len(c.body), 60)]
		assert.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		assert.Equal(t, "application/problem+json", a.header.Get("Content-Type"), name)
		assert.EqualValues(t, c.status, a.member("status"), name)
		assert.NotContains(t, a.body, "secret", name)
		assert.NotContains(t, a.body, long, name)
	}
	a := w.post(path+"check:batch", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11", "Content-Type", "application/x-ndjson")
	assert.Equal(t, http.StatusRequestEntityTooLarge, a.status)
	a = w.post(path+"check:batch", "\n \n", "Content-Type", "application/x-ndjson")
	assert.Equal(t, http.StatusUnprocessableEntity, a.status)
	for _, form := range []string{"text/plain", "", "application/json; charset=latin1", "application/x-ndjson"} {
		a := w.post(path+"check", `{"entity":"e","payload":1}`, "Content-Type", form)
		assert.Equal(t, http.StatusUnsupportedMediaType, a.status, form)
	}
	assert.Equal(t, http.StatusUnsupportedMediaType, w.post(path+"check", `{}`, "Content-Encoding", "gzip").status)
	rows, err := w.store.CheckRows(t.Context(), []store.Key{{Service: 1, Entity: "e"}})
	require.NoError(t, err)
	assert.False(t, rows[0].Found, "nothing was written")
}

// A token reaches its own customer's services only, with the right verb only.
func TestTenantsStayApart(t *testing.T) {
	w := newWorld(t).start()
	body := `{"entity":"e","payload":1}`
	for _, c := range []struct {
		path, token string
		status      int
	}{
		{path, "acme", 200},
		{"beta/crm@check/", "beta", 200},
		{"beta/crm@check/", "acme", 403},
		{path, "beta", 403},
		{path, "sender", 403},
		{path, "nobody", 401},
		{"acme/other@check/", "acme", 404},
		{"acme/other@check/", "beta", 403}, // whether it is there is nobody else's business
		{"acme/", "acme", 403},
	} {
		a := w.post(c.path+"check", body, "Authorization", "Bearer "+c.token)
		assert.Equal(t, c.status, a.status, "%s %s: %s", c.path, c.token, a.body)
	}
	assert.Nil(t, w.post("beta/crm@check/check", `{"entity":"e2","payload":1}`, "Authorization", "Bearer beta").member("repeated"))
}

// A store that fails is 503 with Retry-After: whether it was decided is open,
// and asking again does no harm.
func TestStoreFails(t *testing.T) {
	down := errors.New("secret address is down")
	for name, set := range map[string]func(*world){
		"find":  func(w *world) { w.broken = down },
		"read":  func(w *world) { w.rows = stub{w.store, down, nil} },
		"write": func(w *world) { w.rows = stub{w.store, nil, store.WithClass(down, store.Unknown)} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			set(w)
			w.start()
			a := w.post(path+"check", `{"entity":"e","payload":1}`)
			assert.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
			assert.Equal(t, "1", a.header.Get("Retry-After"))
			assert.Equal(t, "urn:weir:problem:not-decided", a.member("type"))
			assert.NotContains(t, a.body, "secret")
			b := w.post(path+"check:batch", `[{"entity":"e","payload":1},3]`)
			if name == "find" {
				assert.Equal(t, http.StatusServiceUnavailable, b.status)
				return
			}
			rows := b.rows()
			assert.EqualValues(t, 503, rows[0]["error"].(map[string]any)["status"])
			assert.EqualValues(t, 422, rows[1]["error"].(map[string]any)["status"])
		})
	}
}

// stub fails reads or swaps.
type stub struct {
	real       store.CheckRows
	read, swap error
}

func (s stub) CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error) {
	if s.read != nil {
		return nil, fmt.Errorf("read: %w", s.read)
	}
	return s.real.CheckRows(ctx, keys)
}

func (s stub) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	if s.swap != nil {
		return nil, fmt.Errorf("swap: %w", s.swap)
	}
	return s.real.SwapCheckRows(ctx, rows)
}
