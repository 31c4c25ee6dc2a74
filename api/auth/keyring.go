package auth

import (
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reread"
)

// ErrUnauthenticated says that a request shows nothing that lets it in. Why is
// not told to whom asks.
var ErrUnauthenticated = errors.New("a bearer token is needed")

// Options of a Keyring.
type Options struct {
	// File of the tokens; empty for none.
	File string
	// Sources have tokens of their own, by the sources' names.
	Sources map[string]string
	// Loopback lets callers without a token in, since the listener cannot be
	// reached from other machines. It is of no effect beside File.
	Loopback bool
	// Check, if given, returns the faults of a readable file.
	Check func(*config.TokensFile) error
	// Reread hears of later readings of the file: nil for a good one that
	// changed something. Optional.
	Reread func(error)
	// Now is the clock that tokens expire by. Defaults to time.Now.
	Now func() time.Time
}

// Keyring knows the tokens. Its methods may be called concurrently.
type Keyring struct {
	tokens   *reread.Value[map[string]entry] // nil without a file
	sources  []sourceToken
	loopback bool
	nobody   Principal
	now      func() time.Time
	cross    *http.CrossOriginProtection
}

// entry is one token of the file.
type entry struct {
	hash        Hash
	who         Principal
	from, until time.Time
}

// sourceToken is a source's own token.
type sourceToken struct {
	source, tenant string
	hash           Hash
}

// Open reads the file, if one is given. The error is a *config.Faults.
func Open(o Options) (*Keyring, error) {
	k := &Keyring{loopback: o.Loopback && o.File == "", now: o.Now, cross: http.NewCrossOriginProtection()}
	if k.now == nil {
		k.now = time.Now
	}
	tenants := config.SourceTenants(o.Sources)
	for _, source := range slices.Sorted(maps.Keys(o.Sources)) {
		k.sources = append(k.sources, sourceToken{source, tenants[source], HashOf(o.Sources[source])})
		k.nobody.Except = append(k.nobody.Except, source)
	}
	k.nobody.Tenant, k.nobody.Permissions = DefaultTenant, []Permission{Ingest, Check}
	k.nobody.Sources, k.nobody.AnyCustomer = []string{AllSources}, true
	if o.File == "" {
		return k, nil
	}
	if o.Reread == nil {
		o.Reread = func(error) {}
	}
	var err error
	k.tokens, err = reread.Open([]string{o.File}, func() (map[string]entry, error) { return o.read() }, o.Reread)
	return k, err
}

func (o *Options) read() (map[string]entry, error) {
	file, err := config.LoadTokens(o.File, nil)
	if err == nil && o.Check != nil {
		err = o.Check(file)
	}
	if err != nil {
		return nil, err
	}
	own := slices.Sorted(maps.Keys(o.Sources))
	all := make(map[string]entry, len(file.Tokens))
	for _, t := range file.Tokens {
		e := entry{
			who:  Principal{ID: t.ID, Tenant: t.Tenant, Sources: t.Sources, Except: own},
			from: time.Time(t.NotBefore), until: time.Time(t.Expires),
		}
		for _, verb := range t.May {
			e.who.Permissions = append(e.who.Permissions, Permission(verb))
		}
		// LoadTokens has checked the form.
		raw, _ := hex.DecodeString(strings.TrimPrefix(t.Hash.Reveal(), "sha256:"))
		copy(e.hash[:], raw)
		all[t.ID] = e
	}
	return all, nil
}

// Refresh reloads the file if it has changed, so that a wrong one is noticed
// without a request.
func (k *Keyring) Refresh() {
	if k.tokens != nil {
		k.tokens.Get()
	}
}

// Authenticate returns the principal behind a request, or ErrUnauthenticated. It
// looks at headers only. A token that is unknown, wrong, expired or not valid
// yet takes the same work.
func (k *Keyring) Authenticate(r *http.Request) (Principal, error) {
	text, shown := Bearer(r.Header)
	if !shown {
		if k.loopback && len(r.Header.Values("Authorization")) == 0 && k.local(r) {
			return k.nobody, nil
		}
		return Principal{}, ErrUnauthenticated
	}
	if len(text) > 4<<10 {
		return Principal{}, ErrUnauthenticated
	}
	hash := HashOf(text)
	if id, ok := ParseToken(text); ok && k.tokens != nil {
		e, known := k.tokens.Get()[id] // no token has the zero entry's hash
		now := k.now()
		same := subtle.ConstantTimeCompare(hash[:], e.hash[:]) == 1
		if same && known && !now.Before(e.from) && (e.until.IsZero() || now.Before(e.until)) {
			return e.who, nil
		}
	}
	who := Principal{Permissions: []Permission{Ingest}}
	for _, o := range k.sources {
		if subtle.ConstantTimeCompare(hash[:], o.hash[:]) == 1 {
			who.Sources, who.ID, who.Tenant = append(who.Sources, o.source), o.tenant, o.tenant
		}
	}
	if len(who.Sources) == 0 {
		return Principal{}, ErrUnauthenticated
	}
	return who, nil
}

// local reports whether a request without a token is one of this machine's own
// programs: not of a web page that the user of this machine looks at, which a
// browser would send here under a name that leads here, or across origins.
func (k *Keyring) local(r *http.Request) bool {
	return namesLoopback(r.Host) && !crossOrigin(k.cross, r)
}
