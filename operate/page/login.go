package page

import (
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"
)

const (
	// loginLife is for how long a link signs in.
	loginLife = 15 * time.Minute
	// maxLinks bounds unused links.
	maxLinks = 16
)

// link signs one browser in, once.
type link struct {
	actor string
	until time.Time
}

// links are kept by the hash of their token. Safe for concurrent use.
type links struct {
	mu  sync.Mutex
	all map[[32]byte]link // guarded by mu
}

// LoginPath returns the path of a link that signs one browser in, as actor, once and within a
// quarter of an hour, or empty where sign-in is off. It is a secret until it is used.
func (p *Page) LoginPath(actor string) string {
	if !p.canSignIn() {
		return ""
	}
	p.links.mu.Lock()
	defer p.links.mu.Unlock()
	now := p.opt.Now()
	for key, l := range p.links.all {
		if !now.Before(l.until) {
			delete(p.links.all, key)
		}
	}
	if len(p.links.all) >= maxLinks {
		return ""
	}
	if p.links.all == nil {
		p.links.all = map[[32]byte]link{}
	}
	token := rand.Text() + rand.Text()
	p.links.all[sha256.Sum256([]byte(token))] = link{actor, now.Add(loginLife)}
	return "/sign-in?token=" + token
}

// use ends a link and returns who it signs in.
func (l *links) use(token string, now time.Time) (actor string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := sha256.Sum256([]byte(token))
	found, known := l.all[key]
	delete(l.all, key)
	return found.actor, known && now.Before(found.until)
}

// followLink signs the browser of a link in.
func (p signInSection) followLink(w http.ResponseWriter, r *http.Request, token string) {
	actor, ok := p.links.use(token, p.opt.Now())
	if !ok {
		p.opt.Attempts.NoteFailure(r)
		p.show(w, http.StatusForbidden, "This link was used, or is too old: it signs in once, within a quarter of an hour.", "/", "")
		return
	}
	p.admit(w, r, actor, "/")
}
