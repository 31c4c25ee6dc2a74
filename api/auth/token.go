package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

// Parts of a token's text.
const (
	tokenPrefix  = "weir_"
	secretBytes  = 32
	maxTokenText = 256 // bytes that are looked at; longer ones are no tokens
)

// Hash is the SHA-256 of a token's text.
type Hash [sha256.Size]byte

// HashOf returns the hash of a token's text.
func HashOf(text string) Hash { return sha256.Sum256([]byte(text)) }

// String returns the form of the tokens file: "sha256:" and hexadecimal digits.
func (h Hash) String() string { return "sha256:" + hex.EncodeToString(h[:]) }

// NewToken makes a token: its id, for the file and for logs, and its text, for
// its holder alone.
func NewToken() (id, text string) {
	id = strings.ToLower(rand.Text()[:10])
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return id, tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret)
}

// ParseToken parses a token's text. It checks the form only: a Keyring knows
// the valid tokens.
func ParseToken(text string) (id string, ok bool) {
	if len(text) > maxTokenText {
		return "", false
	}
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok {
		return "", false
	}
	id, secret, ok := strings.Cut(rest, "_")
	if !ok || !validID(id) {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(secret)
	// Line ends are passed over by the decoder and are no part of a token.
	return id, err == nil && len(raw) == secretBytes && !strings.ContainsAny(secret, "\r\n")
}

func validID(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return id != "" && len(id) <= 63
}

// Bearer returns the token of a request (RFC 6750, section 2.1). A request with
// several Authorization headers shows none: two readers could disagree on which.
func Bearer(h http.Header) (token string, ok bool) {
	all := h.Values("Authorization")
	if len(all) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(all[0], " ")
	token = strings.Trim(token, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != "" && !strings.ContainsAny(token, " \t")
}
