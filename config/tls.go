package config

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
)

// Client reads the files of a TLS client. The identity is a text that no other
// settings have: it changes with the content of the files. Without settings there
// is no tls.Config.
func (c *TLS) Client() (t *tls.Config, identity string, err error) {
	if c == nil {
		return nil, "none", nil
	}
	files := map[string][]byte{}
	for _, path := range []string{c.CA, c.Cert, c.Key} {
		if path == "" {
			continue
		}
		if files[path], err = os.ReadFile(path); err != nil {
			return nil, "", fmt.Errorf("tls: %w", err)
		}
	}
	t = &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(files[c.CA]) {
			return nil, "", fmt.Errorf("tls: %s holds no certificate in PEM form", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.X509KeyPair(files[c.Cert], files[c.Key])
		if err != nil {
			return nil, "", fmt.Errorf("tls: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{files[c.CA], files[c.Cert], files[c.Key]}) // bytes and texts can be encoded
	return t, hex.EncodeToString(h.Sum(nil)), nil
}
