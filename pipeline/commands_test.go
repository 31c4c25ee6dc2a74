package pipeline

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
)

// listening is a pipeline of which only the operators' listener runs.
func listening(t *testing.T, admin config.Admin, run Executor) (p *Pipeline, address string) {
	t.Helper()
	admin.Listen = "127.0.0.1:0"
	cfg := &config.Config{Admin: admin, Store: config.Store{SQLite: &config.SQLiteStore{Path: filepath.Join(t.TempDir(), "state.db")}}}
	p = &Pipeline{cfg: cfg, log: slog.New(slog.DiscardHandler), reg: prometheus.NewRegistry(), commands: newCommands(), opt: Options{Commands: run}}
	p.gauges = newGauges(p.reg)
	address, stop, err := p.ServeAdmin()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.commands.end())
		require.NoError(t, p.commands.end(), "twice does no harm")
		require.NoError(t, stop())
	})
	return p, address
}

func echo(_ context.Context, c Command, _ func(context.Context) (*operate.Env, error), out, errs io.Writer) int {
	fmt.Fprintf(out, "%v %s %s\xff", c.Args, c.Stdin, c.Actor)
	fmt.Fprint(errs, "a note")
	return 7
}

func TestForwardedCommand(t *testing.T) {
	p, _ := listening(t, config.Admin{}, echo)
	r := findRunning(p.cfg)
	require.NotNil(t, r)
	var out, errs bytes.Buffer
	status, err := r.Forward(t.Context(), Command{Args: []string{"replay", "--all"}, Stdin: []byte("in"), Actor: "me@here"}, &out, &errs)
	require.NoError(t, err)
	require.Equal(t, 7, status)
	require.Equal(t, "[replay --all] in me@here\xff", out.String(), "bytes come as they are")
	require.Equal(t, "a note", errs.String())
}

// Whoever may not, or is a web page's form, runs nothing.
func TestWhoMaySendCommands(t *testing.T) {
	ran := 0
	configured := "0123456789abcdef"
	p, address := listening(t, config.Admin{Token: config.NewSecret(configured)}, func(context.Context, Command, func(context.Context) (*operate.Env, error), io.Writer, io.Writer) int {
		ran++
		return 0
	})
	info, err := os.Stat(p.commands.file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	own := p.commands.token
	require.Len(t, own, 64)
	const js = "application/json"
	for _, c := range []struct {
		name, method, token, kind, body string
		want                            int
	}{
		{"no token", "POST", "", js, `{"args":["x"]}`, 401},
		{"a wrong token", "POST", own[1:] + "0", js, `{"args":["x"]}`, 401},
		{"the process's own", "POST", own, js, `{"args":["x"]}`, 200},
		{"the configured one", "POST", configured, js + "; charset=utf-8", `{"args":["x"]}`, 200},
		{"a form", "POST", own, "application/x-www-form-urlencoded", `{"args":["x"]}`, 415},
		{"no type", "POST", own, "", `{"args":["x"]}`, 415},
		{"reading", "GET", own, js, ``, 405},
		{"no command", "POST", own, js, `{"args":[]}`, 400},
		{"no JSON", "POST", own, js, `{`, 400},
		{"too large", "POST", own, js, `{"args":["` + strings.Repeat("x", maxCommand) + `"]}`, 413},
	} {
		before := ran
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+address+commandsPath, strings.NewReader(c.body))
		require.NoError(t, err)
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.kind != "" {
			req.Header.Set("Content-Type", c.kind)
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		require.NoError(t, err, c.name)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, c.want, resp.StatusCode, c.name)
		require.Equal(t, c.want == 200, ran > before, c.name)
	}
}

// Without a token of any kind nobody is let in: an empty one is none.
func TestNoTokenLetsNobodyIn(t *testing.T) {
	p, address := listening(t, config.Admin{}, echo)
	p.commands.token = ""
	for _, header := range []string{"", "Bearer ", "Bearer x"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+commandsPath, strings.NewReader(`{"args":["x"]}`))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", header)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, 401, resp.StatusCode)
	}
}

// The end of either side ends the command, and the process waits for it.
func TestACommandEndsWithItsCallerAndWithTheProcess(t *testing.T) {
	for _, caller := range []bool{true, false} {
		begun, ended := make(chan struct{}), make(chan struct{})
		p, _ := listening(t, config.Admin{}, func(ctx context.Context, _ Command, _ func(context.Context) (*operate.Env, error), out, _ io.Writer) int {
			fmt.Fprint(out, "working")
			close(begun)
			<-ctx.Done()
			close(ended)
			return 1
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answered := make(chan error, 1)
		r := findRunning(p.cfg)
		go func() {
			status, err := r.Forward(ctx, Command{Args: []string{"x"}}, io.Discard, io.Discard)
			if err == nil && status != 1 {
				err = fmt.Errorf("status %d", status)
			}
			answered <- err
		}()
		<-begun
		if caller {
			cancel()
			require.ErrorIs(t, <-answered, context.Canceled)
			<-ended
			continue
		}
		require.NoError(t, p.commands.end())
		select {
		case <-ended:
		default:
			require.Fail(t, "the process did not wait")
		}
		require.NoError(t, <-answered)
		_, err := r.Forward(t.Context(), Command{Args: []string{"x"}}, io.Discard, io.Discard)
		require.ErrorContains(t, err, "the process is ending")
		require.NoFileExists(t, p.commands.file)
	}
}

// certificate writes a certificate of its own for a name that nobody has.
func certificate(t *testing.T) *config.ServerTLS {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weir"}, DNSNames: []string{"weir.invalid"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	dir := t.TempDir()
	c := &config.ServerTLS{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	require.NoError(t, os.WriteFile(c.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(c.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	return c
}

// With TLS the token goes to nobody but who shows the configured certificate.
func TestForwardKnowsTheCertificate(t *testing.T) {
	p, _ := listening(t, config.Admin{TLS: certificate(t)}, echo)
	r := findRunning(p.cfg)
	status, err := r.Forward(t.Context(), Command{Args: []string{"x"}}, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 7, status)
	other := *p.cfg
	other.Admin.TLS = certificate(t)
	r.cfg = &other
	_, err = r.Forward(t.Context(), Command{Args: []string{"x"}}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "another certificate")
}

func TestDialable(t *testing.T) {
	for listening, want := range map[string]string{
		"127.0.0.1:9600": "127.0.0.1:9600", "0.0.0.0:9600": "127.0.0.1:9600", "[::]:9600": "[::1]:9600", "10.1.2.3:1": "10.1.2.3:1",
	} {
		require.Equal(t, want, dialable(listening))
	}
}

// What is half a file, or somebody else's, leads nowhere.
func TestWhatIsNoWayIn(t *testing.T) {
	cfg := &config.Config{Store: config.Store{SQLite: &config.SQLiteStore{Path: filepath.Join(t.TempDir(), "state.db")}}}
	require.Nil(t, findRunning(cfg))
	for _, text := range []string{"", "{", `{"address":"x"}`, `{"token":"x"}`} {
		require.NoError(t, os.WriteFile(controlPath(cfg), []byte(text), 0o600))
		require.Nil(t, findRunning(cfg), text)
	}
	text, err := json.Marshal(control{Address: "a", Token: "b", PID: 1})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(controlPath(cfg), text, 0o600))
	require.NotNil(t, findRunning(cfg))
}
