package webhook

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
)

// Batch makes each request an array of changes.
type Batch struct {
	// Max is how many changes one request holds.
	Max int `yaml:"max" default:"100" range:"1..10000"`
	// Linger is how long to wait for an array to fill.
	Linger config.Duration `yaml:"linger" default:"1s" range:"0s..1m"`
}

// Config posts changes, signed by Standard Webhooks.
type Config struct {
	// URL to post to.
	URL config.Secret `yaml:"url" required:"true"`
	// Secret signs: whsec_ and the base64 form of 24 to 64 bytes, padded or not. A list
	// signs with each of them, for the time of a rotation.
	Secret []config.Secret `yaml:"secret,single" required:"true"`
	// Headers are sent with every request.
	Headers map[string]config.Secret `yaml:"headers"`
	// Timeout of one request, from connecting to the end of the answer.
	Timeout config.Duration `yaml:"timeout" default:"15s" range:"10ms..5m"`
	// Concurrency is how many entities are in flight at a time.
	Concurrency int `yaml:"concurrency" default:"8" range:"1..1024"`
	// Batch, if given, posts changes as arrays, one request at a time.
	Batch *Batch `yaml:"batch"`
	// Probe is the method of a request without a body by which weir doctor checks path,
	// headers and signature. Defaults to none: only a connection is made.
	Probe string `yaml:"probe" enum:"HEAD|GET|OPTIONS"`
	// Insecure allows http to another machine, and addresses that are not public.
	Insecure bool `yaml:"insecure" default:"false"`
	// DenyPrivate refuses to connect to addresses that are not public, also where
	// a name leads to one: without Insecure, and unless URL names this machine.
	DenyPrivate bool `yaml:"-"`
	// TLS, if given, replaces the system's certificate authorities.
	TLS *config.TLS `yaml:"tls"`
}

// Kind implements config.Sink.
func (*Config) Kind() string { return "webhook" }

// DeliveryMode implements config.Sink.
func (*Config) DeliveryMode() string { return config.KindState }

// Check implements config.Sink.
func (c *Config) Check(check *config.Checker, _ *config.Delivery) {
	check.URL("url", c.URL, "http:// or https://, a host and a path", "http", "https")
	for i, secret := range c.Secret {
		at := config.Element("secret", i)
		if check.IsValue("secret") {
			at = "secret"
		}
		if !check.Known(at) || secret.IsZero() {
			continue
		}
		want := "whsec_ and the base64 form of 24 to 64 bytes"
		key, err := signingKey(secret.Reveal())
		switch {
		case !strings.HasPrefix(strings.TrimSpace(secret.Reveal()), prefix):
			check.Fault(at, "does not begin with whsec_", want)
		case err != nil:
			check.Fault(at, "is not base64 after whsec_", want)
		case len(key) < 24:
			check.Fault(at, "is too short", want)
		case len(key) > 64:
			check.Fault(at, "is too long", want)
		}
	}
	seen := http.Header{}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		at := config.Key("headers", name)
		if fault, want := headerFault(name, seen); fault != "" {
			check.FaultKey(at, fault, want)
		}
		seen.Set(name, "")
		if check.Known(at) && !httpguts.ValidHeaderFieldValue(c.Headers[name].Reveal()) {
			check.Fault(at, "has a line break or another control character", "one line")
		}
	}
	if c.Batch != nil && check.Has("concurrency") {
		check.Fault("concurrency", "has no effect with batch, which sends one request at a time", "one of the two keys")
	}
	check.TLS("tls", c.TLS)
	if u, err := url.Parse(c.URL.Reveal()); err == nil && !c.Insecure && config.Beyond(u.Hostname()) {
		ip, err := netip.ParseAddr(u.Hostname())
		switch {
		case u.Scheme == "http":
			check.Plain("url", "is reached without TLS beyond this machine", "https://, or insecure: true beside it where no third party can read the traffic")
		case err == nil && !public(ip.Unmap()):
			check.Plain("url", "is an address inside a network", "a public one, or insecure: true beside it")
		}
	}
}

// Identity implements config.Sink.
func (c *Config) Identity(func(string) string) []any { return []any{config.Place(c.URL)} }

// Target implements config.Sink: every request says which service it is of.
func (*Config) Target(*config.Cluster) config.Target { return config.Target{Key: "url"} }

// AnswersEach implements config.Answering.
func (*Config) AnswersEach() {}

// ApplyDefaults implements config.SinkDefaults.
func (c *Config) ApplyDefaults() {
	u, err := url.Parse(c.URL.Reveal())
	c.DenyPrivate = !c.Insecure && (err != nil || config.Beyond(u.Hostname()))
}

// ClientTLS implements config.Secured.
func (c *Config) ClientTLS() *config.TLS { return c.TLS }

func (c *Config) headers() map[string]string {
	headers := make(map[string]string, len(c.Headers))
	for name, value := range c.Headers {
		headers[name] = value.Reveal()
	}
	return headers
}

// Make implements kind.Sink.
func (c *Config) Make(e kind.Env) (sinks.Sink, error) {
	secrets := make([]string, len(c.Secret))
	for i, secret := range c.Secret {
		secrets[i] = strings.TrimSpace(secret.Reveal())
	}
	t, identity, err := c.TLS.Client()
	if err != nil {
		return nil, err
	}
	var batched Batch
	if c.Batch != nil {
		batched = *c.Batch
	}
	return New(Options{
		BatchMax: batched.Max, Linger: batched.Linger.D(),
		URL: c.URL.Reveal(), Secrets: secrets, Headers: c.headers(),
		Timeout: c.Timeout.D(), Concurrency: c.Concurrency, DenyPrivate: c.DenyPrivate, TLS: t, TLSIdentity: identity,
		Service: e.Service, Targets: e.Targets,
	})
}

// WithoutSecrets implements kind.Sink.
func (c *Config) WithoutSecrets() kind.Sink {
	copied := *c
	copied.URL = config.NewSecret("https://unset.invalid")
	copied.Secret, copied.Headers = nil, nil
	copied.TLS = nil // its files are checked by the configuration
	return &copied
}

// Unchecked implements reach.Partial.
func (c *Config) Unchecked() string {
	if c.Probe != "" {
		return ""
	}
	return "its path, secret and headers are not checked, since a request may have an effect: webhook.probe names a method that has none"
}

// Ask implements reach.Target: it sends the configured probe, or connects as deliveries do,
// with TLS where the URL wants it, and sends nothing.
func (c *Config) Ask(ctx context.Context, _ func(config.Cluster) (transport.Config, error)) error {
	made, err := c.Make(kind.Env{})
	if err != nil {
		return err
	}
	s := made.(*Sink)
	defer s.Close()
	if c.Probe == "" {
		return s.connect(ctx)
	}
	return s.probe(ctx, c.Probe)
}
