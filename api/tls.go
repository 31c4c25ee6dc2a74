package api

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/seed-86dfc502/weir/internal/reread"
)

// Certificates name the PEM files of a listener.
type Certificates struct {
	// Cert is the certificate chain, Key its private key.
	Cert, Key string
	// ClientCA, if given, are the certificates that clients' are signed by;
	// clients must show one then.
	ClientCA string
}

// TLS returns the settings of a listener: TLS 1.2 or later, Go's choice of
// ciphers, HTTP/2 and HTTP/1.1. The files are read again when they change;
// open connections keep their certificate. tell hears of later
// readings, as reread.Open says.
func TLS(c Certificates, tell func(error)) (*tls.Config, error) {
	paths := []string{c.Cert, c.Key}
	if c.ClientCA != "" {
		paths = append(paths, c.ClientCA)
	}
	current, err := reread.Open(paths, c.load, tell)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		NextProtos:         []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.Get(), nil },
	}, nil
}

func (c Certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	var file *fs.PathError
	switch {
	case errors.As(err, &file):
		return nil, fmt.Errorf("tls: %w", file)
	case err != nil: // it may repeat what a file holds
		return nil, fmt.Errorf("tls: %s and %s are not a certificate and its private key, in PEM", c.Cert, c.Key)
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair}}
	if c.ClientCA == "" {
		return t, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("tls: %w", err)
	}
	t.ClientAuth, t.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !t.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("tls: %s holds no certificate in PEM form", c.ClientCA)
	}
	return t, nil
}
