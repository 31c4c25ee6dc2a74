package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// browser is a real Chromium that fails the test on any error of a page.
type browser struct {
	t       testing.TB
	ctx     context.Context
	address string
	mu      sync.Mutex
	errors  []string // guarded by mu
}

func newBrowser(t testing.TB, address string) *browser {
	folder := filepath.Join(t.TempDir(), "browser")
	t.Cleanup(func() { // processes of the browser may outlive it for a moment, and write there
		harness.Eventually(t, "the browser's folder is removed", func() error { return os.RemoveAll(folder) })
	})
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath("chromium"),
		chromedp.NoSandbox, // its own sandbox needs rights that tests do not have
		chromedp.UserDataDir(folder),
		chromedp.WSURLReadTimeout(2*time.Minute), // a busy machine starts it slowly
	)
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, closeTab := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx, address: address}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for it to end
		closeTab()
	})
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		var what string
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			what = "exception: " + e.ExceptionDetails.Text
		case *runtime.EventConsoleAPICalled:
			what = "console: " + e.Type.String()
		case *log.EventEntryAdded:
			if e.Entry.Level != log.EntryLevelVerbose && e.Entry.Level != log.EntryLevelInfo {
				what = e.Entry.Text + " " + e.Entry.URL
			}
		}
		if what != "" {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.errors = append(b.errors, what)
		}
	}), "Chromium is needed: make servers installs it")
	return b
}

func (b *browser) run(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*harness.Patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// ask runs an action with a result.
func ask[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*harness.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	require.NoError(b.t, err)
	return v
}

func (b *browser) open(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate("http://"+b.address+path), chromedp.WaitReady("main h1"))
}

func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	return ask(b, chromedp.Evaluate[T](script))
}

// until waits for a script to give true; while a page is being loaded it may fail.
func (b *browser) until(what, script string) {
	b.t.Helper()
	harness.Eventually(b.t, what, func() error {
		ctx, cancel := context.WithTimeout(b.ctx, harness.Patience)
		defer cancel()
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script))
		if err == nil && !is {
			text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
			err = fmt.Errorf("not yet; the page says: %s", text)
		}
		return err
	})
	b.run(chromedp.WaitReady("main h1"))
}

// key presses keys, as a person without a mouse does.
func (b *browser) key(keys string) { b.t.Helper(); b.run(chromedp.KeyEvent(keys)) }

// tabTo moves the focus on until it is on what matches.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	for range 80 {
		b.key(kb.Tab)
		if evaluate[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			outline := evaluate[string](b, "getComputedStyle(document.activeElement).outlineStyle")
			require.NotEqual(b.t, "none", outline, "the focus on %s is seen", selector)
			return
		}
	}
	require.Fail(b.t, "the keyboard does not reach "+selector)
}

// healthy checks what holds for every page.
func (b *browser) healthy(what string) {
	b.t.Helper()
	b.mu.Lock()
	require.Empty(b.t, b.errors, what)
	b.mu.Unlock()
	harness.Eventually(b.t, what, func() error { return harness.Want(evaluate[string](b, "document.readyState"), "complete") })
	require.True(b.t, evaluate[bool](b, "window.pwned === undefined"), "%s: what events hold was run", what)
	unnamed := evaluate[[]string](b, `[...document.querySelectorAll("input:not([type=hidden]),select,textarea,button,pre[tabindex]")]
		.filter((e) => !(e.labels && e.labels.length) && !e.ariaLabel && !e.getAttribute("aria-labelledby") && !e.textContent.trim()).map((e) => e.outerHTML)`)
	require.Empty(b.t, unnamed, "%s: controls without a name", what)
}

// faint finds texts of too little contrast (WCAG 2.2, 1.4.3: 4.5 to 1).
const faint = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const ground = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	return [...document.querySelectorAll("body *")].filter((e) => !e.disabled && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) && e.getClientRects().length)
		.filter((e) => { const a = light(parse(getComputedStyle(e).color)), b = light(ground(e)); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5; })
		.map((e) => e.outerHTML.slice(0, 200));
})()`

const evil = `{"event":"e2","id":"C","state":"<script>window.pwned=1</script></textarea><img src=x onerror=window.pwned=1>"`

func correctLetter(t *testing.T, b *browser, p harness.Project, letter string) {
	// Corrected and brought back.
	p.Write("corrected.json", `{"event":"e2","id":"C","state":"corrected"}`)
	require.Zero(t, p.Start("dlq edit "+path.Base(letter)+" --file "+p.Path("corrected.json")+" --reason quote").Wait())
	b.open(letter)
	require.Contains(t, evaluate[string](b, "document.body.innerText"), "corrected")
	b.tabTo("button[value=replay]")
	b.key(kb.Enter)
	b.until("the replay", `document.body.innerText.includes("1 dead letter is on the way")`)
	for _, customer := range []string{"acme", "zest"} {
		harness.Eventually(t, "the delivery", func() error {
			return harness.Want(fmt.Sprint(harness.States(p.Whole("out/"+customer+".jsonl"), "C")), "[corrected]")
		})
	}
	harness.Eventually(t, "the letter's state", func() error {
		b.open(letter)
		if !strings.Contains(evaluate[string](b, "document.body.innerText"), "replayed") {
			return fmt.Errorf("it is not replayed yet")
		}
		return nil
	})
	b.open("/audit")
	said := evaluate[string](b, "document.body.innerText")
	for _, want := range []string{"ann@127.0.0.1", "dlq edit", "quote", "dlq replay"} {
		require.Contains(t, said, want)
	}
}

func discardLetters(t *testing.T, b *browser, p harness.Project) {
	// Ticked in the list and discarded.
	b.open("/letters")
	b.tabTo("input[name=id]")
	b.key(" ")
	b.tabTo("button[value=discard]")
	b.key(kb.Enter)
	b.until("the discard", `document.body.innerText.includes("1 dead letter is discarded")`)
	require.Empty(t, p.Letters())

	// What its versions changed is seen in colours.
	p.Append("events.jsonl", harness.Event(7, "B", "Z"))
	harness.Eventually(t, "the second delivery", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/acme.jsonl"), "B")), "[A Z]")
	})
	b.open("/explain?entity=B")
	require.Equal(t, `"A"`, evaluate[string](b, `document.querySelector(".diff del").innerText`))
	require.Equal(t, `"Z"`, evaluate[string](b, `document.querySelector(".diff ins").innerText`))
}

func pauseAndReset(t *testing.T, b *browser, p harness.Project) {
	// Paused, so that changes queue, and resumed, by the keyboard.
	b.open("/services")
	b.tabTo(`main a[href^="/service?name=acme"]`)
	b.key(kb.Enter)
	b.until("its page", `location.pathname === "/service"`)
	b.run(chromedp.SetValue("input[name=reason]", "they move"))
	b.tabTo("button[value=pause]")
	b.key(kb.Enter)
	b.until("the pause", `document.body.innerText.includes("paused") && document.body.innerText.includes("they move")`)

	// Reset and replay are tried first.
	b.open("/explain?entity=B")
	b.tabTo(`a[href*="kind=reset"]`)
	b.key(kb.Enter)
	b.until("the form", `location.pathname === "/replay" && document.querySelector("textarea").value === "B" && document.querySelector("input[value=reset]").checked`)
	b.tabTo(".actions button")
	b.key(kb.Enter)
	b.until("the trial", `document.body.innerText.includes("Nothing was done. 1 entity would be reset")`)
	b.axe("the trial")
	b.tabTo("button.danger")
	b.key(kb.Enter)
	b.until("the reset", `document.body.innerText.includes("1 entity was reset by job")`)

	p.Append("events.jsonl", harness.Event(8, "B", "Y"))
	harness.Eventually(t, "the delivery to the other", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/zest.jsonl"), "B")), "[A Z Y]")
	})
	require.Equal(t, "[A Z]", fmt.Sprint(harness.States(p.Whole("out/acme.jsonl"), "B")), "it is paused")
	b.open("/services")
	b.tabTo(`main a[href^="/service?name=acme"]`)
	b.key(kb.Enter)
	b.until("its page", `location.pathname === "/service"`)
	b.tabTo("button[value=resume]")
	b.key(kb.Enter)
	harness.Eventually(t, "what waited", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/acme.jsonl"), "B")), "[A Z Y]")
	})
	b.healthy("resumed")
}

// A person signs in, looks at every page in every form, corrects a dead letter
// and sees it delivered: with a real process and a real browser.
func TestInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
	p.Write("events.jsonl", harness.Event(1, "B", "A")+evil+"\n\xff\x00binary\n")
	run := p.Start("run")
	b := newBrowser(t, run.Address("admin"))
	harness.Eventually(t, "the dead letters", func() error { return harness.Want(len(p.Letters()), 2) })
	harness.Eventually(t, "the first delivery", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/acme.jsonl"), "B")), "[A]")
	})
	text := int64(0)
	for _, l := range p.Letters() {
		if p.Letter(l.ID).Payload != nil {
			text = l.ID
		}
	}
	require.NotZero(t, text)
	letter := fmt.Sprint("/letters/", text)

	b.open(letter)
	b.healthy("reading without signing in")
	require.Zero(t, evaluate[int](b, `document.querySelectorAll("form[method=post]").length`), "nothing can be done here")

	// Signed in by the keyboard alone, with the token that the process left.
	b.tabTo(".notice a")
	b.key(kb.Enter)
	b.until("the form", `location.pathname === "/sign-in"`)
	b.run(chromedp.WaitReady("input[name=name]"))
	b.tabTo("input[name=name]")
	b.key("ann")
	b.tabTo("input[name=token]")
	b.key(ownToken(t, p))
	b.key(kb.Enter)
	b.until("being signed in", `location.pathname === "/" && document.querySelector(".who").innerText.includes("ann@")`)

	looks(b, letter)
	keyboard(b)

	correctLetter(t, b, p, letter)
	discardLetters(t, b, p)
	pauseAndReset(t, b, p)
	run.Terminate()
	run.Ok()
}

func ownToken(t *testing.T, p harness.Project) string {
	files, err := filepath.Glob(p.Path("data/*.control"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	var control struct{ Token string }
	require.NoError(t, json.Unmarshal(text, &control))
	return control.Token
}

// shoot keeps a picture of the page, for people who ask for it with -images.
func (b *browser) shoot(name string) {
	b.t.Helper()
	if !*images {
		return
	}
	picture := ask(b, chromedp.FullScreenshot(100))
	folder := filepath.Join("..", "..", "out", "screenshots")
	require.NoError(b.t, os.MkdirAll(folder, 0o755))
	require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644))
}

// A paused page does not change, even with an answer under way.
func TestPauseInABrowser(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	w := newWorld(t, func(o *page.Options) { o.Token = "" })
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	served := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live/overview" {
			select {
			case asked <- struct{}{}:
			default: // it was asked before
			}
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		w.page.ServeHTTP(rw, r)
	}))
	t.Cleanup(served.Close)
	b := newBrowser(t, strings.TrimPrefix(served.URL, "http://"))
	b.open("/")
	select {
	case <-asked:
	case <-time.After(harness.Patience):
		require.Fail(t, "the page does not ask for newer numbers")
	}
	b.tabTo("[data-pause]")
	b.key(" ")
	require.Equal(t, "true", evaluate[string](b, `document.querySelector("[data-pause]").getAttribute("aria-pressed")`))
	close(answer)
	b.until("the answer", `performance.getEntriesByType("resource").some((e) => e.name.endsWith("/live/overview") && e.responseEnd > 0)`)
	require.Equal(t, "none", evaluate[string](b, `document.querySelector("[data-live]").dataset.looks || "none"`))
	b.key(" ")
	b.until("numbers that move again", `Number(document.querySelector("[data-live]").dataset.looks) >= 1`)
	b.healthy("going on")
}

// looks opens the pages that a scene has not: those of a real entity and letter.
func looks(b *browser, letter string) {
	b.t.Helper()
	pages := map[string]string{
		"letter": letter, "explain": "/explain?entity=B", "not-found": "/explain?entity=" + strings.Repeat("nobody", 40), "sign-in": "/sign-in",
	}
	for width, scheme := range map[int64]string{390: "light", 1280: "dark"} {
		b.dress(width, scheme)
		for name, path := range pages {
			what := fmt.Sprintf("%s-%d-%s", name, width, scheme)
			b.open(path)
			evaluate[int](b, `[...document.querySelectorAll("details")].map((d) => { d.open = true; }).length`)
			b.look(what, width)
			b.axe(what)
			dark := evaluate[string](b, "getComputedStyle(document.body).backgroundColor") != "rgb(244, 246, 248)"
			require.Equal(b.t, scheme == "dark", dark, what)
		}
	}
}

// keyboard goes through the overview without a mouse.
func keyboard(b *browser) {
	b.t.Helper()
	b.open("/")
	b.key(kb.Tab)
	require.True(b.t, evaluate[bool](b, `document.activeElement.matches(".skip") && document.activeElement.getBoundingClientRect().left >= 0`), "first of all the way past the navigation")
	b.key(kb.Enter)
	b.until("the jump", `location.hash === "#main"`)
	b.open("/")
	b.until("numbers that move by themselves", `Number(document.querySelector("[data-live]").dataset.looks) >= 2`)
	b.until("its health", `document.querySelector("[data-live]").innerText.includes("dead letters of")`)
	b.tabTo("[data-pause]")
	b.key(" ")
	require.Equal(b.t, "true", evaluate[string](b, `document.querySelector("[data-pause]").getAttribute("aria-pressed")`))
	b.tabTo(`.tile a[href="/letters"]`)
	b.key(kb.Enter)
	b.until("the letters", `location.pathname === "/letters"`)
	b.run(chromedp.WaitReady("main h1"))
	b.tabTo("[data-all]")
	b.key(kb.Enter)
	require.Equal(b.t, 2, evaluate[int](b, `document.querySelectorAll("input[name=id]:checked").length`))
	b.tabTo("button[value=discard-all]")
	b.key(kb.Enter)
	b.until("the question", `document.body.innerText.includes("2 open dead letters: discard all of them?")`)
	b.healthy("the question")
}
