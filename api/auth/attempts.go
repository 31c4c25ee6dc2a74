package auth

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// After maxWrong wrong tokens within wrongPeriod an address has to wait.
	maxWrong    = 10
	wrongPeriod = time.Minute
	// maxAddresses are remembered; further ones share one entry.
	maxAddresses = 1000
)

// Attempts limits the wrong tokens that an address shows to one listener. A
// right token always passes, so an attacker cannot lock out its owner. The limit
// bounds log lines and counters; the length of tokens makes guessing hopeless.
// Safe for concurrent use.
type Attempts struct {
	listener string
	count    prometheus.Counter
	log      *slog.Logger
	now      func() time.Time

	mu    sync.Mutex
	wrong map[netip.Prefix]*failures // guarded by mu
}

type failures struct {
	n     int
	since time.Time
}

// NewAttempts makes the limit of a listener and registers its counter, or uses the one already in
// reg. A nil now means time.Now.
func NewAttempts(listener string, reg prometheus.Registerer, log *slog.Logger, now func() time.Time) *Attempts {
	if now == nil {
		now = time.Now
	}
	all := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_wrong_tokens_total", Help: "Tokens that were shown to a listener and are not valid.",
	}, []string{"listener"})
	var there prometheus.AlreadyRegisteredError
	if err := reg.Register(all); errors.As(err, &there) {
		all = there.ExistingCollector.(*prometheus.CounterVec)
	} else if err != nil {
		panic(err)
	}
	return &Attempts{listener: listener, count: all.WithLabelValues(listener), log: log, now: now, wrong: map[netip.Prefix]*failures{}}
}

// NoteFailure counts a request with a wrong token. It returns how long its address is
// answered 429 from now on; 0 while it is not.
func (a *Attempts) NoteFailure(r *http.Request) time.Duration {
	a.count.Inc()
	from := network(r.RemoteAddr)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if a.wrong[from] == nil && len(a.wrong) >= maxAddresses {
		for key, x := range a.wrong {
			if now.Sub(x.since) >= wrongPeriod {
				delete(a.wrong, key)
			}
		}
		if len(a.wrong) >= maxAddresses {
			from = netip.Prefix{}
		}
	}
	x := a.wrong[from]
	if x == nil || now.Sub(x.since) >= wrongPeriod {
		x = &failures{since: now}
		a.wrong[from] = x
	}
	x.n++
	// Two lines a minute at most for one address.
	switch {
	case x.n == 1:
		a.log.Warn("a wrong token", "event", "auth.wrong_token", "listener", a.listener, "from", source(from))
	case x.n == maxWrong+1:
		a.log.Warn("too many wrong tokens; answering 429 for a minute", "event", "auth.too_many_wrong_tokens", "listener", a.listener, "from", source(from))
	}
	if x.n <= maxWrong {
		return 0
	}
	return x.since.Add(wrongPeriod).Sub(now)
}

// Verify reports whether a request carries one of the tokens; empty ones never match. A
// wrong token is counted; wait is how long its address has to wait.
func (a *Attempts) Verify(r *http.Request, tokens ...string) (known bool, wait time.Duration) {
	given, shown := Bearer(r.Header)
	if a.matches(given, tokens) && shown {
		return true, 0
	}
	if len(r.Header.Values("Authorization")) > 0 {
		wait = a.NoteFailure(r)
	}
	return false, wait
}

// VerifyText is Verify for a token from a form.
func (a *Attempts) VerifyText(r *http.Request, given string, tokens ...string) (known bool, wait time.Duration) {
	if a.matches(given, tokens) {
		return true, 0
	}
	return false, a.NoteFailure(r)
}

// matches compares with all of them, in a time that tells nothing of them.
func (a *Attempts) matches(given string, tokens []string) bool {
	hash, known := HashOf(given), false
	for _, token := range tokens {
		want := HashOf(token)
		same := subtle.ConstantTimeCompare(hash[:], want[:]) == 1
		known = same && token != "" || known
	}
	return known
}

// Admit is Verify, and answers requests that fail it: 401, or 429.
func (a *Attempts) Admit(w http.ResponseWriter, r *http.Request, tokens ...string) bool {
	known, wait := a.Verify(r, tokens...)
	switch {
	case known:
		return true
	case wait > 0:
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
		http.Error(w, "too many wrong tokens", http.StatusTooManyRequests)
	default:
		w.Header().Set("Connection", "close")
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, ErrUnauthenticated.Error(), http.StatusUnauthorized)
	}
	return false
}

// network is what one client has of addresses: the address itself, or the /64
// that an IPv6 host can choose from.
func network(remote string) netip.Prefix {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	ip, bits := ip.Unmap().WithZone(""), 32
	if ip.Is6() {
		bits = 64
	}
	prefix, _ := ip.Prefix(bits) // of a length that fits
	return prefix
}

func source(p netip.Prefix) string {
	if !p.IsValid() {
		return "others"
	}
	return p.String()
}
