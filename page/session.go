package page

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	sessionLife = 8 * time.Hour
	maxSessions = 100
	// After maxWrong wrong tokens within wrongPeriod an address has to wait.
	maxWrong    = 5
	wrongPeriod = time.Minute
	maxAddress  = 1000 // that are remembered
	maxName     = 64   // characters of an operator's name
)

// session is somebody who is signed in.
type session struct {
	Actor string // for the audit
	form  string // what its forms carry; empty for a bearer token
	until time.Time

	mu     sync.Mutex
	notice string // shown by the next page; guarded by mu
}

// Form is what forms of the session carry.
func (s *session) Form() string { return s.form }

func (s *session) leave(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = fmt.Sprintf(format, args...)
}

func (s *session) takeNotice() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.notice
	s.notice = ""
	return n
}

// sessions are kept by the hash of their cookie. Safe for concurrent use.
type sessions struct {
	now func() time.Time
	mu  sync.Mutex
	all map[[32]byte]*session // guarded by mu
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, all: map[[32]byte]*session{}}
}

// open makes a session and gives its cookie's value. The oldest one gives way
// when there are too many.
func (s *sessions) open(actor string) (cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for key, x := range s.all {
		if !now.Before(x.until) {
			delete(s.all, key)
		}
	}
	for len(s.all) >= maxSessions {
		var oldest [32]byte
		var found *session
		for key, x := range s.all {
			if found == nil || x.until.Before(found.until) {
				oldest, found = key, x
			}
		}
		delete(s.all, oldest)
	}
	cookie = rand.Text() + rand.Text()
	s.all[sha256.Sum256([]byte(cookie))] = &session{Actor: actor, form: rand.Text(), until: now.Add(sessionLife)}
	return cookie
}

func (s *sessions) find(cookie string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.all[sha256.Sum256([]byte(cookie))]
	if x == nil || !s.now().Before(x.until) {
		return nil
	}
	return x
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, sha256.Sum256([]byte(cookie)))
}

// attempts counts wrong tokens per address. Safe for concurrent use.
type attempts struct {
	now   func() time.Time
	mu    sync.Mutex
	wrong map[string]*wrong // guarded by mu
}

type wrong struct {
	n     int
	since time.Time
}

func newAttempts(now func() time.Time) *attempts {
	return &attempts{now: now, wrong: map[string]*wrong{}}
}

// wait tells how long an address has to wait before it may try.
func (a *attempts) wait(address string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.wrong[address]
	if x == nil || x.n < maxWrong {
		return 0
	}
	return max(0, x.since.Add(wrongPeriod).Sub(a.now()))
}

func (a *attempts) fail(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if len(a.wrong) >= maxAddress {
		for key, x := range a.wrong {
			if now.Sub(x.since) >= wrongPeriod {
				delete(a.wrong, key)
			}
		}
	}
	x := a.wrong[address]
	if x == nil && len(a.wrong) >= maxAddress {
		return // a thousand addresses at once: each of them still has its own limit
	}
	if x == nil || now.Sub(x.since) >= wrongPeriod {
		x = &wrong{since: now}
		a.wrong[address] = x
	}
	x.n++
}

// address is who asks, without the port.
func address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// cookieName has the port in it, since browsers send a cookie to all ports of a host.
func cookieName(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, port, err := net.SplitHostPort(local.String()); err == nil {
			return "weir_session_" + port
		}
	}
	return "weir_session"
}

func (p *Page) canSignIn() bool { return p.opt.Token != "" || p.opt.OwnToken != "" }

// how says how to sign in.
func (p *Page) how() string {
	switch {
	case p.opt.Token != "" && p.opt.OwnToken != "":
		return "with admin.token of the configuration, or with the token in " + p.opt.OwnFile + "."
	case p.opt.Token != "":
		return "with admin.token of the configuration."
	case p.opt.OwnToken != "":
		return "with the token in " + p.opt.OwnFile + ", which only the user of this process can read."
	}
	return "there is no token yet. Set admin.token in the configuration and start again."
}

// known tells whether a token signs in. Both are always compared.
func (p *Page) known(token string) bool {
	configured := same(token, p.opt.Token) && p.opt.Token != ""
	own := same(token, p.opt.OwnToken) && p.opt.OwnToken != ""
	return configured || own
}

// who finds out who asks: nil for nobody. It answers a wrong bearer token by
// itself, and ok is false then.
func (p *Page) who(w http.ResponseWriter, r *http.Request) (who *session, ok bool) {
	if header := r.Header.Get("Authorization"); header != "" {
		if p.tooMany(w, r) {
			return nil, false
		}
		token, bearer := strings.CutPrefix(header, "Bearer ")
		if !bearer || !p.known(token) {
			p.attempts.fail(address(r))
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "this token is not known", http.StatusUnauthorized)
			return nil, false
		}
		return &session{Actor: "token@" + address(r)}, true
	}
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil, true
	}
	return p.sessions.find(cookie.Value), true
}

// tooMany answers whoever was wrong too often, also when the token is right now.
func (p *Page) tooMany(w http.ResponseWriter, r *http.Request) bool {
	wait := p.attempts.wait(address(r))
	if wait <= 0 {
		return false
	}
	w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
	p.fail(w, r, http.StatusTooManyRequests, "Too many wrong tokens: wait a minute.")
	return true
}

type signInBody struct {
	Next, Name string
	Possible   bool
	How        string
}

// target is where to go after signing in: a page of ours.
func target(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return u.RequestURI()
}

func (p *Page) signInForm(w http.ResponseWriter, r *http.Request) {
	p.show(w, http.StatusOK, "signin", view{Title: "Sign in", Body: signInBody{Next: target(r.URL.Query().Get("next")), Possible: p.canSignIn(), How: p.how()}})
}

func (p *Page) signIn(w http.ResponseWriter, r *http.Request) {
	if p.tooMany(w, r) {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.fail(w, r, http.StatusBadRequest, "The form cannot be read.")
		return
	}
	body := signInBody{Next: target(r.PostForm.Get("next")), Name: strings.TrimSpace(r.PostForm.Get("name")), Possible: p.canSignIn(), How: p.how()}
	again := func(status int, why string) {
		p.show(w, status, "signin", view{Title: "Sign in", Notice: why, Body: body})
	}
	if !goodName(body.Name) {
		again(http.StatusBadRequest, fmt.Sprintf("Say who you are, in 1 to %d characters: it goes on record with what you do.", maxName))
		return
	}
	if !p.known(r.PostForm.Get("token")) {
		p.attempts.fail(address(r))
		p.opt.Logger.Warn("a wrong token at the operators' page", "address", address(r))
		again(http.StatusForbidden, "This token is not known.")
		return
	}
	actor := body.Name + "@" + address(r)
	p.opt.Logger.Info("an operator signed in", "actor", actor)
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- Secure wherever there is TLS; on loopback the page works without
		Name: cookieName(r), Value: p.sessions.open(actor), Path: "/", MaxAge: int(sessionLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, body.Next, http.StatusSeeOther)
}

func goodName(name string) bool {
	n := utf8.RuneCountInString(name)
	return n > 0 && n <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (p *Page) signOut(w http.ResponseWriter, r *http.Request, _ *session) {
	if cookie, err := r.Cookie(cookieName(r)); err == nil {
		p.sessions.end(cookie.Value)
	}
	// #nosec G124 -- as above, and it holds nothing
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
