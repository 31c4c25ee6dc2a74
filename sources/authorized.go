package sources

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
)

// Authorized tells whether a request carries the bearer token; an empty token
// lets every request in. The comparison takes the same time whatever differs.
func Authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}
