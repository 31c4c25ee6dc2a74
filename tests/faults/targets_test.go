package faults

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// answers starts a receiver of its own that answers every request so.
func answers(t testing.TB, status int, body string, headers ...string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// speaks starts a server that reads a request and writes text instead of an answer.
func speaks(t testing.TB, text string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(text))
			}()
		}
	}()
	return l.Addr().String()
}

// secured starts a receiver with a certificate for a host that is valid until a time.
func secured(t testing.TB, host string, until time.Time) (address, authority string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), pemOf(der)
}

func hook(address string, more ...string) string {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return fmt.Sprintf("{webhook: {url: %q, secret: %q, timeout: 2s%s}, retry: {min_backoff: 50ms, max_backoff: 2s}}", address+"/x", harness.WebhookSecret, strings.Join(more, ""))
}

// webhooks are faults of receivers.
func webhooks(t *testing.T) []fault {
	nobody := harness.FreeAddress(t)
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { hangs.CloseClientConnections(); hangs.Close() })
	unknown, _ := secured(t, "127.0.0.1", time.Now().Add(time.Hour))
	expired, expiredBy := secured(t, "127.0.0.1", time.Now().Add(-time.Hour))
	other, otherBy := secured(t, "other.invalid", time.Now().Add(time.Hour))
	file := func(text string) string {
		name := t.TempDir() + "/ca.pem"
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		return fmt.Sprintf(", tls: {ca: %q}", name)
	}
	const clock = "clock.*NTP"
	named := "correct what the target's answer names"
	all := []fault{
		{name: "refused", yaml: hook(nobody), why: "connection refused", do: "start it, or correct its host and port"},
		{name: "noname", yaml: hook("https://acme.invalid"), why: "name is not resolved", do: "correct the host name"},
		{name: "s401", yaml: hook(answers(t, 401, "")), why: "401 Unauthorized", do: "check the secret"},
		{name: "revoked", yaml: hook(answers(t, 401, "api key revoked, call Maria")), why: "api key revoked, call Maria", do: named},
		{name: "tooNew", yaml: hook(answers(t, 401, `{"error":"Message timestamp too new"}`)), why: "Message timestamp too new", do: clock},
		{name: "tooOld", yaml: hook(answers(t, 400, `{"message":"Message timestamp too old"}`)), what: "dead letters of acme/all@tooOld", why: "Message timestamp too old", do: clock, ends: true},
		{name: "s402", yaml: hook(answers(t, 402, "invoice 17 is open")), why: "402.*invoice 17 is open", do: named},
		{name: "s403", yaml: hook(answers(t, 403, `{"error":{"message":"tenant disabled"}}`)), why: "403.*tenant disabled", do: named},
		{name: "s404", yaml: hook(answers(t, 404, "")), why: "404 Not Found", do: "check the URL"},
		{name: "s405", yaml: hook(answers(t, 405, "")), why: "405 Method Not Allowed", do: "check the URL"},
		{name: "s407", yaml: hook(answers(t, 407, "")), why: "407 Proxy", do: "."},
		{name: "s410", yaml: hook(answers(t, 410, "moved to v2 in May")), why: "410 Gone.*moved to v2", do: named},
		{name: "s415", yaml: hook(answers(t, 415, "")), why: "415 Unsupported", do: "application/json"},
		{name: "s421", yaml: hook(answers(t, 421, "")), why: "421 Misdirected", do: "check the URL"},
		{name: "s301", yaml: hook(answers(t, 301, "", "Location", "https://elsewhere.invalid/")), why: "301 Moved", do: "configure the final URL"},
		{name: "s425", yaml: hook(answers(t, 425, "")), why: "425 Too Early", do: "."},
		{name: "s429", yaml: hook(answers(t, 429, "quota of 100 a day", "Retry-After", "60")), why: "429.*quota of 100", do: named},
		{name: "s503", yaml: hook(answers(t, 503, "maintenance until five", "Retry-After", "30")), why: "503.*maintenance until five", do: named},
		{name: "s502", yaml: hook(answers(t, 502, "")), why: "502 Bad Gateway", do: "target"},
		{name: "s504", yaml: hook(answers(t, 504, "")), why: "504 Gateway Timeout", do: "target"},
		{name: "s500", yaml: hook(answers(t, 500, "null pointer in OrderMapper")), why: "500.*null pointer in OrderMapper", do: named},
		{name: "s409", yaml: hook(answers(t, 409, "version conflict")), why: "409 Conflict.*version conflict", do: named},
		{name: "s422", yaml: hook(answers(t, 422, `{"detail":"no such room"}`)), what: "dead letters of acme/all@s422", why: "422.*no such room", do: "weir dlq", ends: true},
		{name: "s413", yaml: hook(answers(t, 413, "")), what: "dead letters of acme/all@s413", why: "413", do: "weir dlq", ends: true},
		{name: "hangs", yaml: hook(hangs.URL), why: "no answer|timed out|in time", do: "did not answer in time"},
		{name: "closes", yaml: hook(speaks(t, "")), why: "closed the connection without an answer", do: "target"},
		{name: "garbage", yaml: hook(speaks(t, "220 mail ready\r\n\r\n")), why: "malformed", do: "target|url"},
		{name: "noTLS", yaml: hook("https://" + speaks(t, "HTTP/1.1 400 Bad Request\r\n\r\n")), why: "does not answer with TLS", do: "scheme or port"},
		{name: "unknownCA", yaml: hook("https://" + unknown), why: "unknown authority", do: "tls.ca"},
		{name: "expired", yaml: hook("https://"+expired, file(expiredBy)), why: "expired", do: "renew the certificate"},
		{name: "otherHost", yaml: hook("https://"+other, file(otherBy)), why: "for another host", do: "correct the host name"},
	}
	return all
}

// postgresTargets are faults of databases.
func postgresTargets(t *testing.T) []fault {
	server := servers.StartOwn(t, "postgres")
	conn, err := pgx.Connect(t.Context(), server.Address)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var hba string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	for _, sql := range []string{
		"CREATE ROLE pw LOGIN PASSWORD 'right'", "CREATE ROLE weak LOGIN", "CREATE ROLE crowded LOGIN CONNECTION LIMIT 0", "CREATE ROLE reader LOGIN",
		"ALTER ROLE reader SET default_transaction_read_only = on", "CREATE ROLE banned LOGIN",
		"CREATE TABLE complete (entity text PRIMARY KEY, id text, state text, version bigint, key text, changed_at timestamptz)",
		"CREATE TABLE other (x int)", "CREATE TABLE foreign_one (x int)", "GRANT ALL ON SCHEMA public TO reader",
		fmt.Sprintf("COPY (VALUES ('host all pw all scram-sha-256'), ('host all banned all reject'), ('local all all trust'), ('host all all all trust')) TO '%s'", hba),
		"SELECT pg_reload_conf()",
	} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	as := func(user, password, database string) string {
		u, err := url.Parse(server.Address)
		require.NoError(t, err)
		u.User = url.UserPassword(user, password)
		u.Path = "/" + database
		return u.String()
	}
	u, err := url.Parse(server.Address)
	require.NoError(t, err)
	table := func(url, rest string) string {
		return fmt.Sprintf("{postgres: {url: %q, %s}, retry: {min_backoff: 50ms, max_backoff: 2s}}", url, rest)
	}
	columns := "columns: {id: text, state: text}"
	return []fault{
		{name: "pgPassword", yaml: table(as("pw", "wrong", "postgres"), "table: t"), why: "password authentication failed", do: "correct the password"},
		{name: "pgUser", yaml: table(as("nobody", "", "postgres"), "table: t"), why: `role "nobody" does not exist`, do: "correct the user"},
		{name: "pgBanned", yaml: table(as("banned", "", "postgres"), "table: t"), why: "pg_hba.conf rejects", do: "pg_hba.conf"},
		{name: "pgDatabase", yaml: table(as("postgres", "", "missing"), "table: t"), why: `database "missing" does not exist`, do: "create the database"},
		{name: "pgTable", yaml: table(server.Address, "table: missing, create: false, "+columns), why: "missing", do: "create it|create the table"},
		{name: "pgSchema", yaml: table(server.Address, "table: nowhere.t"), why: "nowhere", do: "create the schema"},
		{name: "pgRight", yaml: table(as("weak", "", "postgres"), "table: other, create: false"), why: "permission denied|column", do: "grant|column|alter"},
		{name: "pgCreate", yaml: table(as("weak", "", "postgres"), "table: own"), why: "permission denied", do: "grant"},
		{name: "pgColumn", yaml: table(server.Address, "table: foreign_one, create: false, "+columns), why: "column", do: "alter the table|add the column"},
		{name: "pgReadOnly", yaml: table(as("reader", "", "postgres"), "table: readonly"), why: "read-only", do: "primary"},
		{name: "pgCrowded", yaml: table(as("crowded", "", "postgres"), "table: t"), why: "too many connections", do: "max_connections|CONNECTION LIMIT"},
		{name: "pgData", yaml: table(server.Address, "table: numbers, columns: {id: text, state: integer}"), what: "dead letters of acme/all@pgData", why: "integer|state", do: "weir dlq", ends: true},
		{name: "pgRefused", yaml: table("postgres://u@"+harness.FreeAddress(t)+"/x?sslmode=disable", "table: t"), why: "refused", do: "start it, or correct its host"},
		{name: "pgName", yaml: table("postgres://u@db.invalid/x?sslmode=disable", "insecure: true, table: t"), why: "no such host|resolve", do: "correct the host name"},
		{name: "pgTLS", yaml: table(strings.ReplaceAll(server.Address, "sslmode=disable", "sslmode=require"), "table: t"), why: "TLS", do: "sslmode"},
		{name: "pgNotOne", yaml: table("postgres://u@"+speaks(t, "SSH-2.0-x\r\n")+"/x?sslmode=disable", "table: t"), why: ".", do: "."},
		{name: "pgWrongPort", yaml: table("postgres://u@"+u.Hostname()+":1/x?sslmode=disable", "table: t"), why: "refused", do: "port"},
	}
}
func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
