package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listening is a server behind an operators' listener.
func listening(t *testing.T, admin config.Admin, run Executor) (s *Server, listens string) {
	t.Helper()
	cfg := &config.Config{Admin: admin, Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}}
	s = New(Options{Config: cfg, Execute: run})
	mux := http.NewServeMux()
	s.Register(mux, auth.NewAttempts("admin", prometheus.NewRegistry(), slog.New(slog.DiscardHandler), nil))
	o := api.ListenOptions{Name: "admin", Address: "127.0.0.1:0", Limits: api.DefaultLimits, Logger: slog.New(slog.DiscardHandler)}
	if c := admin.TLS; c != nil {
		o.Files = &api.Certificates{Cert: c.Cert, Key: c.Key}
	}
	l, err := api.Listen(o, mux)
	require.NoError(t, err)
	require.NoError(t, s.Announce(l.Addr()))
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "twice does no harm")
		require.NoError(t, l.Close(context.Background()))
	})
	return s, l.Addr().String()
}

func echo(_ context.Context, c Command, out, errs io.Writer) int {
	fmt.Fprintf(out, "%v %s %s\xff", c.Args, c.Stdin, c.Actor)
	fmt.Fprint(errs, "a note")
	return 7
}

func TestForwardedCommand(t *testing.T) {
	s, _ := listening(t, config.Admin{}, echo)
	r := Find(s.opt.Config)
	require.NotNil(t, r)
	var out, errs bytes.Buffer
	status, err := r.Forward(t.Context(), Command{Args: []string{"replay", "--all"}, Stdin: []byte("in"), Actor: "me@here"}, &out, &errs)
	require.NoError(t, err)
	require.Equal(t, 7, status)
	require.Equal(t, "[replay --all] in me@here\xff", out.String(), "bytes come as they are")
	require.Equal(t, "a note", errs.String())
}

// A caller without the token, or a web page's form, runs nothing.
func TestWhoMaySendCommands(t *testing.T) {
	ran := 0
	configured := "0123456789abcdef"
	s, listens := listening(t, config.Admin{Token: config.NewSecret(configured)}, func(context.Context, Command, io.Writer, io.Writer) int {
		ran++
		return 0
	})
	info, err := os.Stat(s.file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	own := s.token
	require.Len(t, own, 26)
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
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+listens+CommandsPath, strings.NewReader(c.body))
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

// Without a token of any kind every caller is refused: an empty one is none.
func TestNoTokenLetsNobodyIn(t *testing.T) {
	s, listens := listening(t, config.Admin{}, echo)
	s.token = ""
	for _, header := range []string{"", "Bearer ", "Bearer x"} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+listens+CommandsPath, strings.NewReader(`{"args":["x"]}`))
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
		s, _ := listening(t, config.Admin{}, func(ctx context.Context, _ Command, out, _ io.Writer) int {
			fmt.Fprint(out, "working")
			close(begun)
			<-ctx.Done()
			close(ended)
			return 1
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answered := make(chan error, 1)
		r := Find(s.opt.Config)
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
		require.NoError(t, s.Close())
		select {
		case <-ended:
		default:
			require.Fail(t, "the process did not wait")
		}
		require.NoError(t, <-answered)
		_, err := r.Forward(t.Context(), Command{Args: []string{"x"}}, io.Discard, io.Discard)
		require.ErrorContains(t, err, "the process is ending")
		require.NoFileExists(t, s.file)
	}
}

// certificate is one of its own.
func certificate(t *testing.T) *config.ServerTLS {
	t.Helper()
	cert, key := harness.Certificate(t)
	return &config.ServerTLS{Cert: cert, Key: key}
}

// With TLS the token is sent only to a peer with the configured certificate.
func TestForwardKnowsTheCertificate(t *testing.T) {
	s, _ := listening(t, config.Admin{TLS: certificate(t)}, echo)
	r := Find(s.opt.Config)
	status, err := r.Forward(t.Context(), Command{Args: []string{"x"}}, io.Discard, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 7, status)
	other := *s.opt.Config
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

// A truncated or foreign file leads nowhere.
func TestWhatIsNoWayIn(t *testing.T) {
	cfg := &config.Config{Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}}
	require.Nil(t, Find(cfg))
	for _, text := range []string{"", "{", `{"address":"x"}`, `{"token":"x"}`} {
		require.NoError(t, os.WriteFile(path(cfg), []byte(text), 0o600))
		require.Nil(t, Find(cfg), text)
	}
	text, err := json.Marshal(address{Address: "a", Token: "b", PID: 1})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path(cfg), text, 0o600))
	require.NotNil(t, Find(cfg))
}

func TestWhichProcessIsAsked(t *testing.T) {
	servers := func(a config.Admin) *config.Config {
		return &config.Config{Admin: a, Kafka: config.Kafka{Cluster: config.Cluster{Brokers: []string{"127.0.0.1:9092"}}}}
	}
	_, err := At(servers(config.Admin{Listen: "off"}))
	require.ErrorIs(t, err, ErrOff)
	_, err = At(servers(config.Admin{Listen: "127.0.0.1:9600"}))
	require.ErrorIs(t, err, ErrNoToken)
	r, err := At(servers(config.Admin{Listen: "0.0.0.0:9600", Token: config.NewSecret("0123456789abcdef")}))
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:9600", r.Address)
	require.Equal(t, "0123456789abcdef", r.Token)
	_, err = At(servers(config.Admin{Listen: "127.0.0.1:0", Token: config.NewSecret("0123456789abcdef")}))
	require.ErrorContains(t, err, "has port 0")
	_, err = At(&config.Config{Admin: config.Admin{Listen: "127.0.0.1:0"}, Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}})
	require.ErrorIs(t, err, ErrNobody)
}
