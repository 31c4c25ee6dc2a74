package control

import (
	"context"
	"encoding/json"
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

// listening is a server behind an operators' listener; it delivers the service "s".
func listening(t *testing.T, admin config.Admin, do http.HandlerFunc) (s *Server, listens string) {
	t.Helper()
	cfg := &config.Config{Admin: admin, Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}}
	s = New(Options{
		Config: cfg, Probe: func(service string) bool { return service == "s" },
		Link: func(actor string) string { return strings.TrimSuffix("http://here/"+actor, "http://here/nobody") },
	})
	mux := http.NewServeMux()
	mux.Handle("POST /do", s.During(do))
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

func TestRetryAndLink(t *testing.T) {
	s, _ := listening(t, config.Admin{}, nil)
	r := Find(s.opt.Config)
	require.NotNil(t, r)
	for service, want := range map[string]bool{"s": true, "a&service=s": false, "": false} {
		found, err := r.Retry(t.Context(), service)
		require.NoError(t, err)
		require.Equal(t, want, found, service)
	}
	for actor, want := range map[string]string{"me@here": "http://here/me@here", "nobody": ""} {
		link, err := r.Link(t.Context(), actor)
		require.NoError(t, err)
		require.Equal(t, want, link)
	}
	_, err := r.Link(t.Context(), "")
	require.ErrorContains(t, err, "400")
	r.Token = "wrong"
	_, err = r.Retry(t.Context(), "s")
	require.ErrorContains(t, err, "401")
}

// A caller without the token gets nothing: an empty one is none.
func TestWhoMayAsk(t *testing.T) {
	configured := "0123456789abcdef"
	s, listens := listening(t, config.Admin{Token: config.NewSecret(configured)}, nil)
	info, err := os.Stat(s.file)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())
	own := s.token
	require.Len(t, own, 26)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer := func(method, header string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+listens+RetryPath+"?service=s", nil)
		require.NoError(t, err)
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		resp, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	require.Equal(t, 200, answer("POST", "Bearer "+own))
	require.Equal(t, 200, answer("POST", "Bearer "+configured))
	require.Equal(t, 405, answer("GET", "Bearer "+own))
	for _, header := range []string{"", "Bearer ", "Bearer x", "Bearer " + own[1:] + "0"} {
		require.Equal(t, 401, answer("POST", header), header)
	}
	s, listens = listening(t, config.Admin{}, nil)
	s.token = ""
	for _, header := range []string{"", "Bearer ", "Bearer x"} {
		require.Equal(t, 401, answer("POST", header), header)
	}
}

// The end of either side ends a request, and the process waits for it.
func TestARequestEndsWithItsCallerAndWithTheProcess(t *testing.T) {
	for _, caller := range []bool{true, false} {
		begun, ended := make(chan struct{}), make(chan struct{})
		s, _ := listening(t, config.Admin{}, func(_ http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answered := make(chan error, 1)
		r := Find(s.opt.Config)
		post := func(ctx context.Context) (string, error) {
			resp, err := r.send(ctx, http.MethodPost, "/do", r.Token)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			return string(text), err
		}
		go func() {
			_, err := post(ctx)
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
		said, err := post(t.Context())
		require.NoError(t, err)
		require.Contains(t, said, "the process is ending")
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
func TestTheCertificateIsCompared(t *testing.T) {
	s, _ := listening(t, config.Admin{TLS: certificate(t)}, nil)
	r := Find(s.opt.Config)
	found, err := r.Retry(t.Context(), "s")
	require.NoError(t, err)
	require.True(t, found)
	other := *s.opt.Config
	other.Admin.TLS = certificate(t)
	r.cfg = &other
	_, err = r.Retry(t.Context(), "s")
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
