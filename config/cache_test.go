package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/postgres"
	"github.com/seed-86dfc502/weir/sinks/webhook"
)

// A load compiles the files whose text or references changed, and no others; it finds the
// same faults as one without a cache, and leaves earlier configurations as they are.
func TestUnchangedFilesAreReused(t *testing.T) {
	customer := func(name, extra string) string {
		return "customer: " + name + "\nprojections:\n  p:\n    when: doc.id != null\n    fields: {id: id, lab: lab.x}\n    deliver:\n" +
			"      hook: {webhook: {url: \"https://x.example/h\", secret: \"${SECRET}\"}}\n" +
			"      table: {postgres: {url: \"postgres://db/x?sslmode=verify-full\", table: " + name + ", columns: {id: text}" + extra + "}}\n"
	}
	main := smallMain + "customers_env: [SECRET]\n"
	main = strings.Replace(main, "[acme.yaml]", `["*/*.yaml"]`, 1)
	path := write(t, map[string]string{"weir.yaml": main, "c/a.yaml": customer("a", ""), "c/b.yaml": customer("b", "")})
	at := func(name string) string { return filepath.Join(filepath.Dir(path), name) }
	change := func(name, text string) { require.NoError(t, os.WriteFile(at(name), []byte(text), 0o600)) }
	secret := "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	stripped := "x"
	vars := func(name string) (string, bool) {
		return map[string]string{"SECRET": secret, "STRIPPED": stripped}[name], name == "SECRET" || name == "STRIPPED"
	}
	var cache config.Cache
	load := func() (*config.Config, error) { return assemble.Load(path, vars, config.Reuse(&cache)) }
	loaded := func() *config.Config {
		c, err := load()
		require.NoError(t, err)
		whole, err := assemble.Load(path, vars)
		require.NoError(t, err)
		require.True(t, config.SameSettings(whole, c))
		require.Equal(t, whole.Identity(), c.Identity())
		return c
	}
	reused := func(a, b *config.Config, i int) bool {
		x, err := a.Compiled(i)
		require.NoError(t, err)
		y, err := b.Compiled(i)
		require.NoError(t, err)
		return x == y
	}

	first := loaded()
	again := loaded()
	require.True(t, reused(first, again, 0) && reused(first, again, 1))

	change("c/b.yaml", customer("b", ", create: false"))
	second := loaded()
	require.True(t, reused(first, second, 0))
	require.False(t, reused(first, second, 1))
	created := func(c *config.Config) bool { return c.Projections[1].Deliver[1].Sink.(*postgres.Config).Create }
	require.True(t, created(first) && !created(second))

	secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	third := loaded()
	require.False(t, reused(second, third, 0))
	require.Equal(t, secret, third.Projections[0].Deliver[0].Sink.(*webhook.Config).Secret[0].Reveal())

	change("c/a.yaml", customer("b", ""))
	_, err := load()
	require.ErrorContains(t, err, "b.yaml:1:11: customer: is already in", "a file of the cache has faults, too")
	change("c/a.yaml", customer("a", ""))
	require.True(t, reused(third, loaded(), 1))

	change("weir.yaml", strings.NewReplacer("mount: lab", "mount: lab, strip: [x]", "entity: id", "entity: id, strip: [lab]").Replace(main))
	_, err = load()
	require.ErrorContains(t, err, "a.yaml:5:27: projections.p.fields.lab", "the checks depend on the main file")
	require.ErrorContains(t, err, "b.yaml:5:27: projections.p.fields.lab")
	// The same text with another value of a reference is another main file.
	referring := strings.NewReplacer("mount: lab", "mount: lab, strip: [x]", "entity: id", "entity: id, strip: [\"${STRIPPED}\"]").Replace(main)
	change("weir.yaml", referring)
	loaded()
	stripped = "lab"
	_, err = load()
	require.ErrorContains(t, err, "a.yaml:5:27: projections.p.fields.lab", "the checks depend on the values of the main file's references")
	change("weir.yaml", main)
	require.NoError(t, os.Remove(at("c/a.yaml")))
	require.Len(t, loaded().Projections, 1)
}
