package assemble

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// ClientTLS reads the files of a TLS client. The identity is a text that no
// other settings have: it changes with the content of the files. Without
// settings there is no tls.Config.
func ClientTLS(c *config.TLS) (t *tls.Config, identity string, err error) {
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
	t = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
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
	return t, sinks.ClientKey("tls", files[c.CA], files[c.Cert], files[c.Key], c.ServerName), nil
}
