// Package auth authenticates and authorizes the callers of the API.
//
// A caller shows a bearer token. A Keyring knows the tokens by their hashes,
// which a file holds, and returns the Principal behind one: a tenant with its
// permissions and sources. A tenant may check the services of the customer of
// the same name. The file is read again when it changes, so tokens come and go
// without a restart; two tokens of one tenant may be valid at a time, which is
// how one replaces the other.
//
// A token is weir_<id>_<secret>: the id finds its entry, the secret is 32 random
// bytes in base64url. 256 random bits cannot be guessed, so a plain SHA-256 of
// the whole text is enough of a hash (salts and slow hashes protect passwords).
package auth
