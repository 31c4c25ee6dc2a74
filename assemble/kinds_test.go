package assemble_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kind"
	sinkkinds "github.com/seed-86dfc502/weir/sinks/registry"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
)

// pigeonSink is a kind of sink of this test alone.
type pigeonSink struct {
	Loft  string `yaml:"loft" required:"true"`
	Birds int    `yaml:"birds" default:"2" range:"1..9"`
}

func (*pigeonSink) Kind() string         { return "pigeon" }
func (*pigeonSink) DeliveryMode() string { return config.KindLog }
func (p *pigeonSink) Check(c *config.Checker, _ *config.Delivery) {
	if p.Loft == "roof" {
		c.Fault("loft", "is too windy", "a shed")
	}
}
func (p *pigeonSink) Identity(func(string) string) []any { return []any{p.Loft} }
func (p *pigeonSink) Target(*config.Cluster) config.Target {
	return config.Target{Key: "loft", Name: "loft " + p.Loft}
}
func (p *pigeonSink) Make(e kind.Env) (sinks.Sink, error) { return pigeons{service: e.Service}, nil }
func (p *pigeonSink) WithoutSecrets() kind.Sink           { return p }

type pigeons struct{ service string }

func (pigeons) Open(context.Context) error                   { return nil }
func (pigeons) Write(context.Context, []change.Change) error { return nil }
func (pigeons) Close() error                                 { return nil }
func (pigeons) Traits() sinks.Traits                         { return sinks.Traits{Kind: sinks.Log} }

// postSource is a kind of source of this test alone.
type postSource struct {
	Box string `yaml:"box"`
}

func (*postSource) Kind() string                                  { return "post" }
func (*postSource) CheckLocators(*config.Checker, *config.Source) {}
func (*postSource) Check(*config.Checker, *config.Source)         {}
func (*postSource) Reads(*config.Cluster) string                  { return "" }
func (p *postSource) Open(_ context.Context, e sources.Env) (sources.Source, error) {
	return post{e.Name + " at " + p.Box}, nil
}

type post struct{ topic string }

func (p post) Topic() string                       { return p.topic }
func (post) Drained(context.Context) (bool, error) { return true, nil }
func (post) Close() error                          { return nil }
func (post) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return nil, nil
}

// A kind that is only listed is read from a file, checked, part of the identity,
// kept from the targets of others, made and opened: nothing else knows its name.
func TestAKindNeedsOnlyItsPackageAndALineOfTheRegistry(t *testing.T) {
	kinds := assemble.Registry()
	kinds.Sinks = append(kinds.Sinks, &pigeonSink{})
	kinds.Sources = append(kinds.Sources, &postSource{})
	dir := t.TempDir()
	load := func(lofts ...string) (*config.Config, error) {
		main := "sources: {letters: {post: {box: corner}, entity: id}}\ncustomers: [acme.yaml]\n"
		customer := "customer: acme\nprojections:\n  all:\n    fields: {id: id}\n    deliver:\n"
		for i, loft := range lofts {
			customer += "      p" + string(rune('a'+i)) + ": {pigeon: {loft: " + loft + "}}\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte(main), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte(customer), 0o600))
		return config.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv, kinds)
	}
	c, err := load("shed")
	require.NoError(t, err)
	require.Equal(t, 2, c.Services()[0].Delivery.Sink.(*pigeonSink).Birds, "the default")
	require.NoError(t, assemble.Check(c))
	require.Equal(t, map[string]sinks.Kind{"acme/all@pa": sinks.Log}, assemble.SinkKinds(c))

	made := &assemble.Sinks{Config: c, Logger: slog.New(slog.DiscardHandler)}
	sink, err := made.New(c.Services()[0])
	require.NoError(t, err)
	require.Equal(t, pigeons{"acme/all@pa"}, sink)
	opened, err := assemble.OpenSource(t.Context(), c, &c.Sources[0], sources.Env{})
	require.NoError(t, err)
	require.Equal(t, "letters at corner", opened.Topic())

	other, err := load("barn")
	require.NoError(t, err)
	require.NotEqual(t, c.Identity(), other.Identity())
	require.Equal(t, c.Fingerprint(), other.Fingerprint())

	_, err = load("roof")
	require.ErrorContains(t, err, "deliver.pa.pigeon.loft: is too windy")
	_, err = load("shed", "shed")
	require.ErrorContains(t, err, "is the target of acme/all@pa")

	_, err = config.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv, assemble.Registry())
	require.ErrorContains(t, err, "has none of kafka, http, file, outbox, postgres")
}

// The delivery mode that a kind declares is that of its sink.
func TestKindsKeepWhatTheirSinksKeep(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "weir.yaml"), []byte("sources: {s: {http: {}, entity: id}}\ncustomers: [acme.yaml]\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "acme.yaml"), []byte(`
customer: acme
projections:
  all:
    fields: {id: id}
    deliver:
      file: {file: {path: out.jsonl}}
      state: {webhook: {url: "https://example.com", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}}
      log: {webhook: {url: "https://example.com", secret: whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw}, kind: log}
      click: {clickhouse: {url: "clickhouse://127.0.0.1:9000/x", table: t}}
      upsert: {postgres: {url: "postgres://127.0.0.1/x", table: u}}
      append: {postgres: {url: "postgres://127.0.0.1/x", table: a, mode: append}}
      topic: {kafka: {topic: t, brokers: ["127.0.0.1:9092"]}}
`), 0o600))
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	made := &assemble.Sinks{Config: c, Logger: slog.New(slog.DiscardHandler)}
	kinds, seen := assemble.SinkKinds(c), map[string]bool{}
	for _, s := range c.Services() {
		sink, err := made.New(s)
		require.NoError(t, err)
		require.Equal(t, sink.Traits().Kind, kinds[s.Name], s.Name)
		require.NoError(t, sink.Close())
		seen[s.Delivery.Sink.Kind()] = true
	}
	require.Len(t, seen, len(sinkkinds.Kinds()), "every kind is asked")
}
