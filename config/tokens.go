package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// TokensFile is the file that api.tokens names: who may use the API. It holds
// hashes only, so it is no secret.
type TokensFile struct {
	// Tokens in the order of the file.
	Tokens []Token `yaml:"tokens"`
}

// Token configures one token.
type Token struct {
	// ID is the middle part of the token's text.
	ID string `yaml:"id" required:"true"`
	// Hash is "sha256:" and 64 hexadecimal digits: the hash of the token's text.
	// A token here by mistake is not shown.
	Hash Secret `yaml:"hash" required:"true"`
	// Tenant is the holder of the token. It may use the services of the customer with its name.
	Tenant string `yaml:"tenant" required:"true"`
	// May lists its permissions: ingest, check, import.
	May []string `yaml:"may" required:"true"`
	// Sources that it may ingest or import into; "*" is all of them.
	Sources []string `yaml:"sources"`
	// NotBefore and Expires bound its life, if they are given.
	NotBefore Instant `yaml:"not_before"`
	Expires   Instant `yaml:"expires"`
}

// Instant is a point in time. The zero Instant is none.
type Instant time.Time

// UnmarshalText reads a time of RFC 3339.
func (i *Instant) UnmarshalText(text []byte) error {
	at, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return &mistake{problem: "is not a time", want: `a time of RFC 3339, like "2027-01-31T00:00:00Z"`}
	}
	*i = Instant(at)
	return nil
}

var (
	tokenID   = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)
	tokenHash = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	tokenMay  = []string{"ingest", "check"}
)

// LoadTokens reads the file at path. Where sources is not nil, names that are
// not in it are a fault. The error is a *Faults with everything that is wrong.
// References to variables and files have no meaning in this file.
func LoadTokens(path string, sources []string) (*TokensFile, error) {
	doc := newDocument(path, &Faults{})
	return decodeTokens(doc, doc.read(), sources)
}

// ParseTokens is LoadTokens for a text.
func ParseTokens(text []byte) (*TokensFile, error) {
	doc := newDocument("", &Faults{})
	doc.data = text
	return decodeTokens(doc, doc.parse(), nil)
}

func decodeTokens(doc *document, root *yaml.Node, sources []string) (*TokensFile, error) {
	var file TokensFile
	if root != nil {
		l := &loader{env: func(string) (string, bool) { return "", false }, noFiles: true}
		l.decode(doc, root, &file)
		checkTokens(doc, &file, sources)
	}
	if len(doc.faults.List) > 0 {
		return nil, doc.faults.sorted()
	}
	return &file, nil
}

func checkTokens(doc *document, file *TokensFile, sources []string) {
	if !doc.has("tokens") && len(doc.faults.List) == 0 {
		doc.faultKey("", "lacks tokens", "a list of tokens, [] for none")
	}
	for path, v := range doc.values {
		if hash := strings.HasSuffix(path, "].hash"); v.unresolved || !v.plain && !hash {
			doc.fault(path, "is a reference", "the text itself")
		}
	}
	ids := claims{}
	for i := range file.Tokens {
		t, path := &file.Tokens[i], element("tokens", i)
		if at := member(path, "id"); doc.known(at) && t.ID != "" {
			if !tokenID.MatchString(t.ID) {
				doc.fault(at, "is not a usable id", "1 to 63 of a-z, 0-9 and -")
			} else if first, taken := ids.take(t.ID, path, doc.at(at)); taken {
				doc.fault(at, "is the id of "+first.String()+" too", "an id of its own")
			}
		}
		if at := member(path, "hash"); doc.known(at) && !t.Hash.IsZero() && !tokenHash.MatchString(t.Hash.Reveal()) {
			doc.fault(at, "is not a hash", `"sha256:" and 64 hexadecimal digits, as weir token new prints it`)
		}
		if at := member(path, "tenant"); doc.known(at) && t.Tenant != "" && !namePattern.MatchString(t.Tenant) {
			doc.fault(at, "is not a usable name", wantName)
		}
		for j, may := range t.May {
			if at := element(member(path, "may"), j); doc.known(at) && !slices.Contains(tokenMay, may) {
				doc.fault(at, "is not allowed", "ingest or check")
			}
		}
		feeds := slices.Contains(t.May, "ingest")
		switch {
		case feeds && len(t.Sources) == 0 && !doc.bad[member(path, "sources")]:
			doc.faultKey(path, "lacks sources", `names of sources, or ["*"] for all`)
		case !feeds && len(t.Sources) > 0:
			doc.faultKey(member(path, "sources"), "has no effect without ingest", "no sources, or ingest in may")
		}
		for j, name := range t.Sources {
			at := element(member(path, "sources"), j)
			switch {
			case !doc.known(at) || name == "*":
			case !namePattern.MatchString(name):
				doc.fault(at, "is not a usable name", wantName)
			case sources != nil && !slices.Contains(sources, name):
				doc.fault(at, "is not a source", fmt.Sprintf("one of %v, or \"*\"", sources))
			}
		}
		from, until := time.Time(t.NotBefore), time.Time(t.Expires)
		if !from.IsZero() && !until.IsZero() && !from.Before(until) {
			doc.fault(member(path, "expires"), "is not after not_before", "a later time")
		}
	}
}
