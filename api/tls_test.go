package api_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/stretchr/testify/require"
)

// authority signs certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	a := &authority{t: t}
	a.cert, a.key = a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) make(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(a.t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return cert, key
}

// leaf makes a certificate for 127.0.0.1, for servers and clients.
func (a *authority) leaf(name string) tls.Certificate {
	cert, key := a.make(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// place writes blocks of PEM by renaming, as tools that renew certificates do.
func place(t *testing.T, path string, blocks ...*pem.Block) {
	t.Helper()
	f, err := os.Create(path + ".new")
	require.NoError(t, err)
	for _, b := range blocks {
		require.NoError(t, pem.Encode(f, b))
	}
	require.NoError(t, f.Close())
	require.NoError(t, os.Rename(path+".new", path))
}

func install(t *testing.T, files *api.Certificates, c tls.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	require.NoError(t, err)
	place(t, files.Key, &pem.Block{Type: "PRIVATE KEY", Bytes: der})
	place(t, files.Cert, &pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

// certified makes an authority and a certificate of it, in files.
func certified(t *testing.T) (*authority, *api.Certificates) {
	t.Helper()
	a, dir := newAuthority(t, "ca"), t.TempDir()
	files := &api.Certificates{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	install(t, files, a.leaf("one"))
	return a, files
}

// get asks once, on a connection of its own, and returns whose certificate the
// server showed and the protocol.
func get(address string, c *tls.Config) (server, protocol string, err error) {
	transport := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: bound}).Get("https://" + address + "/")
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.Proto, err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a, files := certified(t)
	told := make(chan error, 100)
	address := listen(t, api.ListenOptions{Files: files, Reread: func(err error) { told <- err }}, http.NotFoundHandler())

	server, protocol, err := get(address, &tls.Config{RootCAs: a.pool()})
	require.NoError(t, err)
	require.Equal(t, "one", server)
	require.Equal(t, "HTTP/2.0", protocol)
	_, protocol, err = get(address, &tls.Config{RootCAs: a.pool(), MaxVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	require.NoError(t, err)
	require.Contains(t, []string{"HTTP/1.1", "HTTP/2.0"}, protocol)
	_, _, err = get(address, &tls.Config{RootCAs: a.pool(), MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	require.ErrorContains(t, err, "protocol version")

	// A new certificate is shown without a restart.
	install(t, files, a.leaf("two"))
	require.Eventually(t, func() bool {
		server, _, err := get(address, &tls.Config{RootCAs: a.pool()})
		return err == nil && server == "two"
	}, bound, 50*time.Millisecond)

	// A wrong one is not: the last good pair stays, and that is told.
	for len(told) > 0 {
		t.Log("told before:", <-told)
	}
	place(t, files.Cert, &pem.Block{Type: "CERTIFICATE", Bytes: []byte("not a certificate")})
	require.Eventually(t, func() bool {
		server, _, err := get(address, &tls.Config{RootCAs: a.pool()})
		require.NoError(t, err)
		require.Equal(t, "two", server)
		return len(told) > 0 && <-told != nil
	}, bound, 50*time.Millisecond)
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	servers, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"), newAuthority(t, "others")
	dir := t.TempDir()
	files := &api.Certificates{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "ca.pem")}
	install(t, files, servers.leaf("server"))
	place(t, files.ClientCA, &pem.Block{Type: "CERTIFICATE", Bytes: clients.cert.Raw})
	handled := make(chan struct{}, 1000)
	address := listen(t, api.ListenOptions{Files: files, Reread: func(error) {}}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled <- struct{}{} }))

	with := func(c ...tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: servers.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(8), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(c) == 0 {
				return &tls.Certificate{}, nil
			}
			return &c[0], nil // also one of an authority that the server did not ask for
		}}
	}
	own, stranger := clients.leaf("client"), others.leaf("stranger")
	known := with(own)
	_, _, err := get(address, known)
	require.NoError(t, err)
	require.Len(t, handled, 1)
	for name, c := range map[string]*tls.Config{"none": with(), "of another authority": with(stranger)} {
		_, _, err = get(address, c)
		require.Error(t, err, name)
	}
	require.Len(t, handled, 1, "no request of theirs was handled")

	// The authority is replaced: whom the first one signed is out, also with a
	// session of before.
	place(t, files.ClientCA, &pem.Block{Type: "CERTIFICATE", Bytes: others.cert.Raw})
	require.Eventually(t, func() bool {
		_, _, err := get(address, with(stranger))
		return err == nil
	}, bound, 50*time.Millisecond)
	_, _, err = get(address, known)
	require.Error(t, err)
}

func TestListenFails(t *testing.T) {
	dir := t.TempDir()
	o := api.ListenOptions{Name: "test", Address: "127.0.0.1:0", Limits: api.DefaultLimits}
	o.Files = &api.Certificates{Cert: filepath.Join(dir, "none.pem"), Key: filepath.Join(dir, "none.pem")}
	_, err := api.Listen(o, http.NotFoundHandler())
	require.ErrorIs(t, err, os.ErrNotExist)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	o.Files, o.Address = nil, taken.Addr().String()
	_, err = api.Listen(o, http.NotFoundHandler())
	require.ErrorContains(t, err, "listen on")
}
