package page_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// -images writes the pictures of docs/explain.md anew, and one of each page into out/screenshots.
var images = flag.Bool("images", false, "write pictures of the pages")

// inBrowser serves a scene to a browser that is signed in by a link.
func (s *scene) inBrowser() *browser {
	served := httptest.NewServer(http.HandlerFunc(s.page.ServeHTTP))
	s.t.Cleanup(served.Close)
	b := newBrowser(s.t, strings.TrimPrefix(served.URL, "http://"))
	b.open(s.page.LoginPath("ann@here"))
	require.Equal(s.t, "/", evaluate[string](b, "location.pathname"))
	return b
}

// addresses are all pages of a scene, by a name for people.
func (s *scene) addresses() map[string]string {
	one := strings.NewReplacer("/", "%2F", "@", "%40").Replace(s.services[0])
	return map[string]string{
		"overview": "/", "services": "/services", "service": "/service?name=" + one + "&range=6h", "sources": "/sources", "source": "/sources/registry?range=24h",
		"history": "/history?range=24h", "entities": "/entities?q=B-", "letters": "/letters",
		"audit": "/audit", "replay": "/replay", "system": "/system", "explain": "/explain?entity=B-000001",
	}
}

func (b *browser) dress(width int64, scheme string) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, 900))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// broken finds words that a line breaks inside: names may break behind their
// punctuation only. A word that is longer than the page is wide has to.
const broken = `(() => {
	const bad = [];
	const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
	for (let n = walk.nextNode(); n; n = walk.nextNode()) {
		const e = n.parentElement;
		if (e.closest("pre,code,textarea,select,svg,del,ins,script") || !e.getClientRects().length) { continue; }
		for (const m of n.data.matchAll(/[\p{L}\p{N}]+(?:[.,]\p{N}+)*/gu)) {
			if (m[0].length > 24) { continue; }
			const r = document.createRange();
			r.setStart(n, m.index); r.setEnd(n, m.index + m[0].length);
			const tops = new Set([...r.getClientRects()].filter((c) => c.width > 0).map((c) => Math.round(c.top)));
			if (tops.size > 1) { bad.push(m[0] + " in " + e.outerHTML.slice(0, 120)); }
		}
	}
	return bad;
})()`

// axe looks for what keeps people out who do not see, or do not use a mouse.
func (b *browser) axe(what string) {
	b.t.Helper()
	script, err := os.ReadFile(filepath.Join("testdata", "axe", "axe.min.js"))
	require.NoError(b.t, err)
	evaluate[bool](b, string(script)+"; true")
	evaluate[bool](b, `window.found = null; axe.run(document, {resultTypes: ["violations"]}).then((r) => { window.found = r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160)).slice(0, 3).join(" | ")); }); true`)
	b.until("axe", "window.found !== null")
	require.Empty(b.t, evaluate[[]string](b, "window.found"), "%s: axe-core", what)
}

// look checks what holds for every page in every form.
func (b *browser) look(what string, width int64) {
	b.t.Helper()
	b.until("the plots", `[...document.querySelectorAll("[data-canvases]")].every((c) => c.querySelector("canvas"))`)
	b.shoot(what)
	require.LessOrEqual(b.t, evaluate[int64](b, "document.documentElement.scrollWidth"), width, what)
	require.Empty(b.t, evaluate[[]string](b, faint), "%s: too little contrast", what)
	require.Empty(b.t, evaluate[[]string](b, broken), "%s: broken words", what)
	require.Equal(b.t, width >= 1200, evaluate[bool](b, `document.querySelector("nav [aria-current=page]")?.checkVisibility() ?? innerWidth >= 1200`), "%s: the navigation shows where one is, in a menu on a narrow screen", what)
	require.Empty(b.t, evaluate[[]string](b, cut), "%s: cut off", what)
	require.Empty(b.t, evaluate[[]string](b, joined), "%s: words run together", what)
	b.healthy(what)
}

// cut finds cards and cells whose content overflows at the side.
const cut = `[...document.querySelectorAll("main .card, main .card td, main .card th")].filter((e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1 && !e.closest(".scroll"))
	.map((e) => e.scrollWidth + " in " + e.clientWidth + ": " + e.outerHTML.slice(0, 160))`

// joined finds words of two elements without a space between them.
const joined = `(() => {
	const bad = [], word = /[\p{L}\p{N}]/u;
	const rect = (n, i) => { const r = document.createRange(); r.setStart(n, i); r.setEnd(n, i + 1); return r.getBoundingClientRect(); };
	const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
	for (let last = null, n = walk.nextNode(); n; n = walk.nextNode()) {
		if (n.parentElement.closest("svg,script,option,figure,.scroll") || !n.parentElement.getClientRects().length || !n.data) { continue; }
		if (last && word.test(last.data.at(-1)) && word.test(n.data[0]) && last.nextSibling?.nodeName !== "WBR") {
			const a = rect(last, last.data.length - 1), b = rect(n, 0);
			if (Math.abs(a.bottom - b.bottom) < 8 && Math.abs(b.left - a.right) < 2) { bad.push(last.data + "|" + n.data); }
		}
		last = n;
	}
	return bad;
})()`

// On a narrow screen the pages are in a menu, by the keyboard; on a wide one the overview is
// one screen.
func TestMenuInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	b := newScene(t, 3, 0).inBrowser()
	b.dress(390, "light")
	b.open("/")
	require.Zero(t, evaluate[int](b, `[...document.querySelectorAll("nav#pages a")].filter((a) => a.checkVisibility()).length`))
	b.tabTo(".menu")
	b.key("\r")
	require.Equal(t, 9, evaluate[int](b, `[...document.querySelectorAll("nav#pages a")].filter((a) => a.checkVisibility()).length`))
	b.axe("the menu")
	b.shoot("menu-390")
	b.tabTo(`nav#pages a[href="/audit"]`)
	b.key("\r")
	b.until("the audit", `location.pathname === "/audit"`)
	b.dress(1280, "light")
	b.open("/")
	require.LessOrEqual(t, evaluate[int](b, `Math.round(document.querySelector("#flow").closest("section").getBoundingClientRect().bottom)`), 900, "health, problems and flow in one screen")
	b.open("/service?name=acme%2Fripeness%40warehouse&range=24h")
	b.until("the plots", `document.querySelectorAll("canvas").length >= 5`)
	require.Equal(t, []string{"outage", "reload", "outage", "start"}, evaluate[[]string](b, `[...document.querySelectorAll("[data-mark]")].map((m) => m.dataset.mark)`))
	require.Equal(t, 1, evaluate[int](b, `document.querySelectorAll("[data-mark=outage][data-until]").length`), "one is over")
	require.Positive(t, evaluate[int](b, `document.querySelectorAll("td[data-v='']").length`), "unknown before the start")
	b.healthy("the menu")
}

// Times on a page that stays open grow older, those that nothing renews.
func TestTimesInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	b := newScene(t, 3, 0).inBrowser()
	b.open("/audit")
	require.Regexp(t, `^(now|\d+ (second|minute)s? ago)$`, evaluate[string](b, `document.querySelector("td time").innerText`))
	evaluate[bool](b, `document.querySelector("td time").dataset.ago = "7300"; document.dispatchEvent(new Event("visibilitychange"))`)
	require.Equal(t, "2 hours ago", evaluate[string](b, `document.querySelector("td time").innerText`))
	b.healthy("the audit")
}

// Each page looks right to a person and to axe-core, with few services.
func TestLooks(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	s := newScene(t, 3, 40)
	b := s.inBrowser()
	for _, form := range []struct {
		width  int64
		scheme string
	}{{390, "dark"}, {1280, "light"}} {
		b.dress(form.width, form.scheme)
		for _, name := range slices.Sorted(maps.Keys(s.addresses())) {
			what := fmt.Sprintf("%s-%d-%s-few", name, form.width, form.scheme)
			b.open(s.addresses()[name])
			b.look(what, form.width)
			b.axe(what)
			if *images && form.width == 1280 && (name == "overview" || name == "service") {
				picture := ask(b, chromedp.CaptureScreenshot())
				require.NoError(t, os.MkdirAll(filepath.Join("..", "..", "docs", "images"), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join("..", "..", "docs", "images", name+".png"), picture, 0o644))
			}
		}
	}
}
