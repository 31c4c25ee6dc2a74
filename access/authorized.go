package access

import (
	"crypto/subtle"
	"net/http"
)

// Authorized tells whether a request carries the one token of a listener that
// knows no tenants; an empty token lets every request in. The comparison takes
// the same time whatever differs.
func Authorized(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	given, ok := Bearer(r.Header)
	a, b := HashOf(given), HashOf(token)
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && ok
}
