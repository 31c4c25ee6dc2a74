package page_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// slow is a store that gives a page of entities when it is told to.
type slow struct {
	page.Store
	next chan struct{}
}

func (s slow) Entities(ctx context.Context, after string, limit int) ([]store.Entity, error) {
	select {
	case <-s.next:
		if after != "" {
			return nil, nil
		}
		all := make([]store.Entity, limit) // a whole page, so that another one is asked for
		for i := range all {
			all[i] = store.Entity{ID: fmt.Sprintf("B-%03d", i), Docs: []byte(`{"events":{"id":"B","state":"green"}}`), Version: change.NewVersion(1, int64(i))}
		}
		return all, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s slow) CountEntities(context.Context) (int64, error) { return 500, nil }

// slowWorld has a store that waits.
func slowWorld(t *testing.T, patience time.Duration) (*world, slow) {
	s := slow{next: make(chan struct{})}
	w := newWorld(t, func(o *page.Options) {
		s.Store = o.Store
		o.Store, o.Patience = s, patience
	})
	_, err := w.store.Activate(t.Context(), []byte("another"), 0, false)
	require.NoError(t, err)
	return w, s
}

const plannedCustomer = "customer: acme\nprojections: {all: {fields: {id: id}, deliver: {out: {file: {path: out.jsonl}}}}}\n"

// A plan goes on when its request has ended, is found again with its progress by
// whoever looks, can be begun once at a time, and its result stays.
func TestJobOutlivesItsRequest(t *testing.T) {
	w, s := slowWorld(t, time.Millisecond)
	as, form := w.signIn(token)
	plan := func() *http.Response {
		body, kind := parts(t, map[string]string{"form": form, "folder": "customers"}, map[string][2]string{
			"main": {"weir.yaml", harness.SimpleMain}, "customers": {"acme.yaml", plannedCustomer},
		})
		return w.do("POST", "/plan", body, kind, as)
	}
	status, body := w.get("/jobs/plan", as)
	require.Equal(t, 404, status, body)
	resp := plan()
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text(t, resp))
	require.Equal(t, "/jobs/plan", resp.Header.Get("Location"))
	_, body = w.get("/jobs/plan", as)
	require.Contains(t, body, "begun by ann@")
	require.Contains(t, body, "Cancel")
	_, body = w.get("/plan", as)
	require.Contains(t, body, "under way")
	status, _ = w.get("/jobs/plan")
	require.Equal(t, 303, status, "to the sign-in")
	status, _ = w.get("/live/jobs/plan")
	require.Equal(t, 401, status)
	resp = plan()
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Contains(t, text(t, resp), "begun by ann@")

	s.next <- struct{}{}
	require.Eventually(t, func() bool { _, body := w.get("/live/jobs/plan", as); return strings.Contains(body, "500 of 500") }, harness.Patience, time.Millisecond)
	s.next <- struct{}{}
	w.beside.Wait()
	_, body = w.get("/live/jobs/plan", as)
	require.Contains(t, body, "data-ended")
	_, body = w.get("/jobs/plan", as)
	require.Contains(t, body, "acme/all@out")
	_, body = w.get("/plan", as)
	require.Contains(t, body, "what came of it")

	// Cancelled by a form of the session alone, and another one may begin.
	require.Equal(t, http.StatusSeeOther, plan().StatusCode)
	require.Equal(t, 403, w.post("/jobs/plan/cancel", url.Values{}, as).StatusCode)
	require.Equal(t, http.StatusSeeOther, w.post("/jobs/plan/cancel", url.Values{"form": {form}}, as).StatusCode)
	status, body = w.get("/jobs/plan", as)
	require.Equal(t, 409, status)
	require.Contains(t, body, "cancelled after 0 of")
	for range 2 {
		status, _ = w.get("/jobs/nonsense", as)
		require.Equal(t, 404, status)
	}
}

// A process that is ending begins nothing, and what it began ends with it.
func TestJobsEndWithTheProcess(t *testing.T) {
	w, _ := slowWorld(t, time.Millisecond)
	ending, end := context.WithCancel(t.Context())
	over := false
	w.opt.RunInBackground = func(f func(context.Context)) bool {
		if !over {
			w.beside.Go(func() { f(ending) })
		}
		return !over
	}
	w.page = page.New(w.opt)
	as, form := w.signIn(token)
	plan := func() int {
		body, kind := parts(t, map[string]string{"form": form, "folder": "customers"}, map[string][2]string{
			"main": {"weir.yaml", harness.SimpleMain}, "customers": {"acme.yaml", plannedCustomer},
		})
		return w.do("POST", "/plan", body, kind, as).StatusCode
	}
	require.Equal(t, http.StatusSeeOther, plan())
	end()
	w.beside.Wait()
	over = true
	require.Equal(t, http.StatusServiceUnavailable, plan())
}

// A person sees how far a job is, finds it again after a reload, and what came of
// it without doing anything.
func TestJobInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	w, s := slowWorld(t, time.Millisecond)
	served := httptest.NewServer(w.page)
	t.Cleanup(served.Close)
	b := newBrowser(t, strings.TrimPrefix(served.URL, "http://"))
	b.open("/sign-in")
	b.tabTo("input[name=name]")
	b.key("ann")
	b.tabTo("input[name=token]")
	b.key(token + "\r")
	b.until("being signed in", `location.pathname === "/"`)
	as, form := w.signIn(token)
	begin := func() {
		body, kind := parts(t, map[string]string{"form": form, "folder": "customers"}, map[string][2]string{
			"main": {"weir.yaml", harness.SimpleMain}, "customers": {"acme.yaml", plannedCustomer},
		})
		require.Equal(t, http.StatusSeeOther, w.do("POST", "/plan", body, kind, as).StatusCode)
	}
	begin()
	b.open("/plan")
	b.tabTo(`.notice a[href="/jobs/plan"]`)
	b.key("\r")
	b.until("the job", `location.pathname === "/jobs/plan" && !!document.querySelector("progress")`)
	require.Empty(t, evaluate[[]string](b, faint))
	b.shoot("job")
	b.healthy("the job")
	s.next <- struct{}{}
	b.until("progress that moves by itself", `document.body.innerText.includes("500 of 500")`)
	b.open("/jobs/plan")
	require.Contains(t, evaluate[string](b, "document.body.innerText"), "500 of 500", "after a reload")
	s.next <- struct{}{}
	b.until("the result, by itself", `document.body.innerText.includes("500 entities are stored")`)
	b.healthy("the result")

	begin()
	b.open("/jobs/plan")
	b.tabTo("button.danger")
	b.key("\r")
	b.until("the end", `document.body.innerText.includes("It was cancelled")`)
}
