package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/seed-86dfc502/weir/config"
)

// Running is a process that has the data folder open.
type Running struct {
	address
	cfg *config.Config
}

// Find reads how to reach the process that has the data folder open, or nil if it has not
// announced itself yet. A process that opens the folder removes an earlier announcement.
func Find(c *config.Config) *Running {
	text, err := os.ReadFile(path(c))
	if err != nil {
		return nil
	}
	r := &Running{cfg: c}
	if json.Unmarshal(text, &r.address) != nil || r.Address == "" || r.Token == "" {
		return nil
	}
	return r
}

// String names the process in errors.
func (r *Running) String() string {
	if r.PID == 0 {
		return "the process at " + r.Address
	}
	return fmt.Sprintf("process %d", r.PID)
}

// Retry makes a service that waits for its target retry now. It returns false when the
// process does not deliver it.
func (r *Running) Retry(ctx context.Context, service string) (bool, error) {
	_, found, err := r.ask(ctx, RetryPath, "service", service)
	return found, err
}

// Link returns a link that signs an actor in to the page, empty when the page has none.
func (r *Running) Link(ctx context.Context, actor string) (string, error) {
	link, _, err := r.ask(ctx, LinkPath, "actor", actor)
	return link, err
}

// ask posts a request with one parameter. found is false when the process answers 404.
func (r *Running) ask(ctx context.Context, path, key, value string) (answer string, found bool, err error) {
	resp, err := r.send(ctx, http.MethodPost, path+"?"+url.Values{key: {value}}.Encode(), r.Token)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return "", false, fmt.Errorf("%s: its answer broke off: %w", r, err)
	case resp.StatusCode == http.StatusNotFound:
		return "", false, nil
	case resp.StatusCode != http.StatusOK:
		return "", false, &StatusError{Who: r.String(), Status: resp.Status}
	}
	return string(body), true, nil
}

// Why no process can be asked.
var (
	ErrOff     = errors.New("the operators' listener is off (admin.listen), so no process can be asked")
	ErrNoToken = errors.New("with servers a process takes commands with admin.token only, and there is none")
	ErrNobody  = errors.New("no process answers")
)

// At finds the process for requests that change something: the process that has the data folder
// open, or, with servers, the process at the configured operators' listener, with the configured
// token. The error is ErrOff, ErrNoToken or ErrNobody when there is no such process.
func At(c *config.Config) (*Running, error) {
	if c.Admin.Off() {
		return nil, ErrOff
	}
	if c.Kafka.Embedded() {
		if r := Find(c); r != nil {
			return r, nil
		}
		return nil, errNoneOpen
	}
	if c.Admin.Token.IsZero() {
		return nil, ErrNoToken
	}
	r, err := Look(c)
	if err == nil {
		r.Token = c.Admin.Token.Reveal()
	}
	return r, err
}

var (
	errNoneOpen = fmt.Errorf("%w: no process runs with this data folder", ErrNobody)
	errAnyPort  = fmt.Errorf("%w: admin.listen has port 0, and only the log of the process says which port it has; set one", ErrNobody)
)

// Reload asks the process to read its configuration again. A *ReloadRefused
// when it does not want it.
func (r *Running) Reload(ctx context.Context, rollBack bool) (done Reloaded, err error) {
	resp, err := r.send(ctx, http.MethodPost, fmt.Sprintf("%s?activate=%t", ReloadPath, rollBack), r.Token)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return done, fmt.Errorf("%s: its answer broke off: %w", r, err)
	}
	why := errors.New(strings.TrimSpace(strings.TrimPrefix(string(body), refusedPrefix)))
	switch resp.StatusCode {
	case http.StatusOK:
		return done, json.Unmarshal(body, &done)
	case http.StatusUnprocessableEntity:
		return done, &ReloadRefused{why}
	}
	return done, fmt.Errorf("%s answered %s: %w", r, resp.Status, why)
}

// send sends a request. The error is ErrNobody when the connection is refused.
func (r *Running) send(ctx context.Context, method, path, token string) (*http.Response, error) {
	client, scheme, err := r.client()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+r.Address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: no process listens at %s", ErrNobody, r.Address)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%s did not answer in time: %w", r, context.DeadlineExceeded)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r, err)
	}
	return resp, nil
}

// client makes the client for one request. With TLS the peer must show the very
// certificate that the configuration names; names in it do not matter, since the
// connection is to this machine.
func (r *Running) client() (*http.Client, string, error) {
	t := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	c := &http.Client{Transport: t}
	if r.cfg.Admin.TLS == nil {
		return c, "http", nil
	}
	text, err := os.ReadFile(r.cfg.Admin.TLS.Cert)
	if err != nil {
		return nil, "", fmt.Errorf("admin.tls: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, "", fmt.Errorf("admin.tls: %s holds no certificate in PEM form", r.cfg.Admin.TLS.Cert)
	}
	want, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("admin.tls: %w", err)
	}
	t.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // #nosec G402 -- VerifyConnection compares the certificate itself
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !s.PeerCertificates[0].Equal(want) {
				return errors.New("the listener shows another certificate than the configured one")
			}
			return nil
		},
	}
	return c, "https", nil
}

// Look is At for who only looks, which needs no token where the listener asks for none.
func Look(c *config.Config) (*Running, error) {
	if c.Admin.Off() {
		return nil, ErrOff
	}
	r := &Running{address: address{Address: dialable(c.Admin.Listen)}, cfg: c}
	if c.Kafka.Embedded() {
		found := Find(c)
		if found == nil {
			return nil, errNoneOpen
		}
		r.Address = found.Address
	} else if strings.HasSuffix(c.Admin.Listen, ":0") {
		return nil, errAnyPort
	}
	return r, nil
}

// Get reads a page of the listener with a token of the configuration, if there is one.
// ErrNobody when the connection is refused, a *StatusError for an answer of any other kind than 200
// and 503.
func (r *Running) Get(ctx context.Context, path string) ([]byte, error) {
	token := r.cfg.Admin.Token
	if token.IsZero() && path == MetricsPath {
		token = r.cfg.Admin.MetricsToken
	}
	resp, err := r.send(ctx, http.MethodGet, path, token.Reveal())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		err = &StatusError{Who: r.String(), Status: resp.Status}
	}
	return body, err
}

// Healthy asks whether the process is alive, or ready. The error says why not.
func (r *Running) Healthy(ctx context.Context, ready bool) error {
	path := "/healthz"
	if ready {
		path = "/readyz"
	}
	resp, err := r.send(ctx, http.MethodGet, path, r.cfg.Admin.Token.Reveal())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return fmt.Errorf("%s answered %s: %s", r, resp.Status, strings.TrimSpace(string(why)))
}

// StatusError is an answer that is no page.
type StatusError struct{ Who, Status string }

func (e *StatusError) Error() string { return e.Who + " answered " + e.Status }
