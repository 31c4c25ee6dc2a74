package page_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func TestReadingNeedsAConfiguredToken(t *testing.T) {
	w := newWorld(t, nil)
	w.letter("{")
	for _, path := range pages {
		resp := w.do("GET", path, nil)
		if strings.HasPrefix(path, "/live/") {
			require.Equal(t, 401, resp.StatusCode, path)
		} else {
			require.Equal(t, 303, resp.StatusCode, path)
			require.Equal(t, "/sign-in?next="+url.QueryEscape(path), resp.Header.Get("Location"))
		}
		require.NotContains(t, text(t, resp), "bad_json")
		status, _ := w.get(path, bearer)
		require.Equal(t, 200, status, path)
	}
	as, _ := w.signIn(token)
	for _, path := range pages {
		status, _ := w.get(path, as)
		require.Equal(t, 200, status, path)
	}
	status, _ := w.get("/", header("Authorization", "Bearer "+token+"x"))
	require.Equal(t, 401, status)
}

func TestReadingIsOpenWithoutAConfiguredToken(t *testing.T) {
	w := newWorld(t, func(o *page.Options) { o.Token = "" })
	w.letter("{")
	for _, path := range pages {
		status, _ := w.get(path)
		require.Equal(t, 200, status, path)
	}
	for _, path := range []string{"/letters", "/letters/1"} {
		_, body := w.get(path)
		require.Contains(t, body, "Set <code>admin.token</code>", path)
		require.NotContains(t, body, `method="post"`, path)
	}
	// Sign-in is off: a missing token is not the empty one.
	for _, secret := range []string{"", token} {
		resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {secret}})
		require.Equal(t, http.StatusForbidden, resp.StatusCode)
		require.Empty(t, resp.Cookies())
	}
	status, _ := w.get("/", header("Authorization", "Bearer "))
	require.Equal(t, 401, status)
}

func TestOwnTokenSignsIn(t *testing.T) {
	w := newWorld(t, func(o *page.Options) { o.Token, o.OwnToken, o.OwnFile = "", "own-token", "data/state.db.control" })
	w.letter("{")
	_, body := w.get("/sign-in")
	require.Contains(t, strings.ReplaceAll(body, "<wbr>", ""), "data/state.db.control")
	w.signIn("own-token")
}

func TestEveryWriteNeedsASessionAndItsForm(t *testing.T) {
	for _, configured := range []string{token, ""} {
		w := newWorld(t, func(o *page.Options) { o.Token, o.OwnToken = configured, token })
		id := w.letter("{")
		as, form := w.signIn(token)
		_, other := w.signIn(token)
		require.NotEqual(t, form, other)
		writes := map[string]url.Values{
			"/letters":  {"do": {"discard"}, "id": {fmt.Sprint(id)}, "form": {form}},
			"/sign-out": {"form": {form}},
		}
		for path, values := range writes {
			refused := func(what string, want int, values url.Values, as ...asks) {
				t.Helper()
				resp := w.post(path, values, as...)
				require.Equal(t, want, resp.StatusCode, "%s: %s", path, what)
			}
			refused("nobody", 403, values)
			refused("a made-up cookie", 403, values, header("Cookie", "weir_session=x"))
			without, wrong := url.Values{}, url.Values{}
			for k, v := range values {
				without[k], wrong[k] = v, v
			}
			without.Del("form")
			wrong.Set("form", other)
			refused("no form token", 403, without, as)
			refused("the token of another session", 403, wrong, as)
			refused("another site, by fetch metadata", 403, values, as, header("Sec-Fetch-Site", "cross-site"))
			refused("a sister site", 403, values, as, header("Sec-Fetch-Site", "same-site"))
			refused("another site, by origin", 403, values, as, header("Origin", "http://evil.example"))
			refused("a wrong bearer token", 401, values, header("Authorization", "Bearer x"))
			w.now = w.now.Add(2 * time.Minute) // wrong ones are counted
		}
		l, err := w.store.Letter(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, store.LetterOpen, l.State)
		require.Equal(t, "{", string(l.Payload))

		resp := w.post("/letters", writes["/letters"], as, header("Sec-Fetch-Site", "same-origin"))
		require.Equal(t, 200, resp.StatusCode)
		require.Contains(t, text(t, resp), "1 dead letter is discarded")
		audits, err := w.store.Audits(t.Context(), store.AuditFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, audits, 1)
		require.Equal(t, "ann@192.0.2.1", audits[0].Actor)
		require.Equal(t, "dlq discard", audits[0].Action)

		// After signing out the cookie is void.
		require.Equal(t, 303, w.post("/sign-out", writes["/sign-out"], as).StatusCode)
		require.Equal(t, 403, w.post("/letters", writes["/letters"], as).StatusCode)
	}
}

func TestSessionsEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.letter("{")
	as, _ := w.signIn(token)
	w.now = w.now.Add(8*time.Hour - time.Second)
	status, _ := w.get("/", as)
	require.Equal(t, 200, status)
	w.now = w.now.Add(time.Second)
	status, _ = w.get("/", as)
	require.Equal(t, 303, status)

	first, _ := w.signIn(token)
	for range 100 { // there is room for so many
		w.now = w.now.Add(time.Second)
		w.signIn(token)
	}
	status, _ = w.get("/", first)
	require.Equal(t, 303, status, "the oldest gave way")
}

func TestWrongTokensAreLimited(t *testing.T) {
	w := newWorld(t, nil)
	try := func(secret string) *http.Response {
		return w.post("/sign-in", url.Values{"name": {"ann"}, "token": {secret}})
	}
	for range 9 {
		require.Equal(t, 403, try("wrong").StatusCode)
	}
	wrong := header("Authorization", "Bearer wrong")
	status, _ := w.get("/", wrong)
	require.Equal(t, 401, status)
	resp := try("wrong")
	require.Equal(t, 429, resp.StatusCode)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	status, _ = w.get("/", wrong)
	require.Equal(t, 429, status, "one limit for the form and the header")
	require.Equal(t, 303, try(token).StatusCode, "the right one is not locked out")
	status, _ = w.get("/", bearer)
	require.Equal(t, 200, status)
	w.now = w.now.Add(time.Minute)
	require.Equal(t, 403, try("wrong").StatusCode)
}

func TestSignInStaysHere(t *testing.T) {
	w := newWorld(t, nil)
	for next, want := range map[string]string{
		"/letters?stage=decide": "/letters?stage=decide", "": "/", "//evil.example/": "/", "https://evil.example/": "/", `/\evil.example`: "/", "javascript:alert(1)": "/", "letters": "/",
	} {
		resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {token}, "next": {next}})
		require.Equal(t, want, resp.Header.Get("Location"), next)
	}
	for _, name := range []string{"", "  ", strings.Repeat("x", 65), "a\nb", "a\x00"} {
		require.Equal(t, 400, w.post("/sign-in", url.Values{"name": {name}, "token": {token}}).StatusCode, name)
	}
}

// With TLS the cookie is one that no other host and no plaintext can set.
func TestCookieWithTLS(t *testing.T) {
	w := newWorld(t, nil)
	for name, state := range map[string]*tls.ConnectionState{"weir_session_": nil, "__Host-weir_session_": {}} {
		by := func(r *http.Request) { r.TLS = state }
		resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {token}}, by)
		cookie := resp.Cookies()[0]
		require.True(t, strings.HasPrefix(cookie.Name, name), cookie.Name)
		require.Equal(t, state != nil, cookie.Secure)
		require.Equal(t, "/", cookie.Path)
		require.Empty(t, cookie.Domain)
		status, _ := w.get("/", by, func(r *http.Request) { r.AddCookie(cookie) })
		require.Equal(t, 200, status)
	}
}
