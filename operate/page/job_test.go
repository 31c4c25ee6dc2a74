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

	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// slow is a store that moves a page of letters when it is told to.
type slow struct {
	page.Store
	next chan struct{}
}

func (s slow) MoveLetters(ctx context.Context, ids []int64, from, to store.LetterState, audit store.Audit) (int, error) {
	select {
	case <-s.next:
		return s.Store.MoveLetters(ctx, ids, from, to, audit)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// slowWorld has a slow store with 150 letters, of which a page holds 100.
func slowWorld(t *testing.T, patience time.Duration) (*world, slow) {
	s := slow{next: make(chan struct{})}
	w := newWorld(t, func(o *page.Options) {
		s.Store = o.Store
		o.Store, o.Patience = s, patience
	})
	w.someLetters(150)
	return w, s
}

func (w *world) someLetters(n int) {
	letters := make([]store.DeadLetter, n)
	for i := range letters {
		letters[i] = store.DeadLetter{Stage: store.StageIngest, Code: "bad_json", Source: "events", Payload: []byte("{"), State: store.LetterOpen, DedupKey: fmt.Sprint("some ", i)}
	}
	require.NoError(w.t, w.store.AddLetters(w.t.Context(), letters))
}

// discardAll begins the job.
func (w *world) discardAll(form string, as asks) *http.Response {
	return w.post("/letters", url.Values{"form": {form}, "do": {"discard-all"}, "sure": {"yes"}}, as)
}

// A job continues after its request, is found again with its progress by any operator, runs
// once at a time, and its result stays.
func TestJobOutlivesItsRequest(t *testing.T) {
	w, s := slowWorld(t, time.Millisecond)
	as, form := w.signIn(token)
	begin := func() *http.Response { return w.discardAll(form, as) }
	status, body := w.get("/jobs/letters", as)
	require.Equal(t, 404, status, body)
	resp := begin()
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, text(t, resp))
	require.Equal(t, "/jobs/letters", resp.Header.Get("Location"))
	_, body = w.get("/jobs/letters", as)
	require.Contains(t, body, "begun by ann@")
	require.Contains(t, body, "Cancel")
	_, body = w.get("/letters", as)
	require.Contains(t, body, "under way")
	status, _ = w.get("/jobs/letters")
	require.Equal(t, 303, status, "to the sign-in")
	status, _ = w.get("/live/jobs/letters")
	require.Equal(t, 401, status)
	resp = begin()
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Contains(t, text(t, resp), "begun by ann@")

	s.next <- struct{}{}
	require.Eventually(t, func() bool { _, body := w.get("/live/jobs/letters", as); return strings.Contains(body, "100 of 150") }, harness.Patience, time.Millisecond)
	s.next <- struct{}{}
	w.beside.Wait()
	_, body = w.get("/live/jobs/letters", as)
	require.Contains(t, body, "data-ended")
	_, body = w.get("/jobs/letters", as)
	require.Contains(t, body, "150 dead letters are discarded")
	_, body = w.get("/letters", as)
	require.Contains(t, body, "its result")

	// Cancelled by a form of the session alone, and another one may begin.
	w.someLetters(151)
	require.Equal(t, http.StatusSeeOther, begin().StatusCode)
	require.Equal(t, 403, w.post("/jobs/letters/cancel", url.Values{}, as).StatusCode)
	require.Equal(t, http.StatusSeeOther, w.post("/jobs/letters/cancel", url.Values{"form": {form}}, as).StatusCode)
	status, body = w.get("/jobs/letters", as)
	require.Equal(t, 409, status)
	require.Contains(t, body, "cancelled after 0 of")
	for range 2 {
		status, _ = w.get("/jobs/nonsense", as)
		require.Equal(t, 404, status)
	}
}

// An ending process begins no job, and its jobs end with it.
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
	begin := func() int { return w.discardAll(form, as).StatusCode }
	require.Equal(t, http.StatusSeeOther, begin())
	end()
	w.beside.Wait()
	over = true
	require.Equal(t, http.StatusServiceUnavailable, begin())
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
	begin := func() { require.Equal(t, http.StatusSeeOther, w.discardAll(form, as).StatusCode) }
	begin()
	b.open("/letters")
	b.tabTo(`.notice a[href="/jobs/letters"]`)
	b.key("\r")
	b.until("the job", `location.pathname === "/jobs/letters" && !!document.querySelector("progress")`)
	require.Empty(t, evaluate[[]string](b, faint))
	b.shoot("job")
	b.healthy("the job")
	s.next <- struct{}{}
	b.until("progress that moves by itself", `document.body.innerText.includes("100 of 150")`)
	b.open("/jobs/letters")
	require.Contains(t, evaluate[string](b, "document.body.innerText"), "100 of 150", "after a reload")
	s.next <- struct{}{}
	b.until("the result, by itself", `document.body.innerText.includes("150 dead letters are discarded")`)
	b.healthy("the result")

	w.someLetters(151)
	begin()
	b.open("/jobs/letters")
	b.tabTo("button.danger")
	b.key("\r")
	b.until("the end", `document.body.innerText.includes("It was cancelled")`)
}
