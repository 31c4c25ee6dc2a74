package page

import (
	"crypto/rand"
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
	// linkLife is for how long a link signs in.
	linkLife = 15 * time.Minute
	maxLinks = 16
	maxName  = 64 // characters of an operator's name
)

// session is an operator who is signed in.
type session struct {
	Actor string // for the audit
	form  string // the token of its forms; empty for a bearer token

	mu     sync.Mutex
	notice string // message for the next page; guarded by mu
}

// Form is the token of the session's forms, empty without a session.
func (s *session) Form() string {
	if s == nil {
		return ""
	}
	return s.form
}

func (s *session) setNotice(format string, args ...any) {
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

// address is who asks, without the port.
func address(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		return host
	}
	return r.RemoteAddr
}

// newCookieName returns a name of one process: browsers share the cookies of a host among
// its ports, and another process must neither overwrite nor set this one's. Such a
// process still sees the value, see docs/explain.md.
func newCookieName() string { return "weir_session_" + rand.Text()[:10] }

// cookieName returns the name of the session's cookie. With TLS its prefix keeps other
// hosts of a domain from setting it.
func (p *Page) cookieName(r *http.Request) string {
	if r.TLS != nil {
		return "__Host-" + p.cookie
	}
	return p.cookie
}

func (p *Page) canSignIn() bool { return p.opt.Token != "" || p.opt.OwnToken != "" }

// signInHint tells how to sign in.
func (p *Page) signInHint() string {
	switch {
	case p.opt.Token != "" && p.opt.OwnToken != "":
		return "by the link that weir page prints, with admin.token of the configuration, or with the token in " + p.opt.OwnFile + "."
	case p.opt.Token != "":
		return "by the link that weir page prints, or with admin.token of the configuration."
	case p.opt.OwnToken != "":
		return "by the link that weir page prints, or with the token in " + p.opt.OwnFile + ", which only the user of this process can read."
	}
	return "there is no token yet. Set admin.token in the configuration and start again."
}

// authenticate returns the session of a request, nil without one. It answers a wrong
// bearer token itself, and ok is false then.
func (p *Page) authenticate(w http.ResponseWriter, r *http.Request) (who *session, ok bool) {
	if r.Header.Get("Authorization") != "" {
		if !p.opt.Attempts.Admit(w, r, p.opt.Token, p.opt.OwnToken) {
			return nil, false
		}
		return &session{Actor: "token@" + address(r)}, true
	}
	cookie, err := r.Cookie(p.cookieName(r))
	if err != nil {
		return nil, true
	}
	who, _ = p.sessions.find(cookie.Value)
	return who, true
}

// signInSection signs operators in and out.
type signInSection struct{ *Page }

type signInBody struct {
	Next, Name string
	Possible   bool
	Hint       string
}

// show answers with the form and a notice.
func (p signInSection) show(w http.ResponseWriter, status int, notice, next, name string) {
	p.withPlace(w, nil, func() {
		p.Page.show(w, status, "signin", view{Title: "Sign in", Notice: notice, Body: signInBody{next, name, p.canSignIn(), p.signInHint()}})
	})
}

// target is where to go after signing in: a page of ours.
func target(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return u.RequestURI()
}

func (p signInSection) form(w http.ResponseWriter, r *http.Request) {
	if token := r.URL.Query().Get("token"); token != "" {
		p.followLink(w, r, token)
		return
	}
	p.show(w, http.StatusOK, "", target(r.URL.Query().Get("next")), "")
}

// LoginPath returns the path of a link that signs one browser in, as actor, once and within a
// quarter of an hour, or empty where sign-in is off. It is a secret until it is used.
func (p *Page) LoginPath(actor string) string {
	if !p.canSignIn() {
		return ""
	}
	return "/sign-in?token=" + p.links.add(actor)
}

// followLink signs the browser of a link in.
func (p signInSection) followLink(w http.ResponseWriter, r *http.Request, token string) {
	actor, ok := p.links.end(token)
	if !ok {
		p.opt.Attempts.NoteFailure(r)
		p.show(w, http.StatusForbidden, "This link was used, or is too old: it signs in once, within a quarter of an hour.", "/", "")
		return
	}
	p.admit(w, r, actor, "/")
}

// signInPatience is how long the body of a sign-in may take.
const signInPatience = 2 * time.Second

// signIn takes a place for failures only, whose answer is a page, and only once the
// body is read: clients without a token cannot shut out the right one.
func (p signInSection) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxSignIn)
	// Where deadlines cannot be set the listener's own holds.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(signInPatience))
	if err := r.ParseForm(); err != nil {
		p.withPlace(w, nil, func() { p.renderMessage(w, r, http.StatusBadRequest, "The form cannot be read.") })
		return
	}
	next, name := target(r.PostForm.Get("next")), strings.TrimSpace(r.PostForm.Get("name"))
	again := func(status int, why string) { p.show(w, status, why, next, name) }
	if !validName(name) {
		again(http.StatusBadRequest, fmt.Sprintf("Enter your name, in 1 to %d characters: the audit records it with each action.", maxName))
		return
	}
	known, wait := p.opt.Attempts.VerifyText(r, r.PostForm.Get("token"), p.opt.Token, p.opt.OwnToken)
	switch {
	case known:
	case wait > 0:
		w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
		again(http.StatusTooManyRequests, "Too many wrong tokens came from your address. The right one still signs in.")
		return
	default:
		again(http.StatusForbidden, "This token is not known.")
		return
	}
	p.admit(w, r, name+"@"+address(r), next)
}

// admit opens a session in the browser that asks, and leads it on.
func (p signInSection) admit(w http.ResponseWriter, r *http.Request, actor, next string) {
	p.opt.Logger.Info("an operator signed in", "event", "page.signed_in", "actor", actor)
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- Secure wherever there is TLS; on loopback the page works without
		Name: p.cookieName(r), Value: p.sessions.add(&session{Actor: actor, form: rand.Text()}), Path: "/", MaxAge: int(sessionLife.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	http.Redirect(w, r, next, http.StatusSeeOther)
}

func validName(name string) bool {
	n := utf8.RuneCountInString(name)
	return n > 0 && n <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (p signInSection) signOut(w http.ResponseWriter, r *http.Request, _ *session) error {
	if cookie, err := r.Cookie(p.cookieName(r)); err == nil {
		p.sessions.end(cookie.Value)
	}
	// #nosec G124 -- as above, and it holds nothing
	http.SetCookie(w, &http.Cookie{Name: p.cookieName(r), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil})
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return nil
}
