package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/config"
)

const secondProjection = `  list:
    fields: {id: id}
    deliver: {archive: {file: {path: out/list.jsonl}}}
`

// A service has a print of its own, which only its name and its projection change; what
// decisions about all services depend on is the base. The identity in the store has them.
func TestPrintsAreOfServices(t *testing.T) {
	before := load(t, mainFile, acmeFile+secondProjection)
	fingerprint, base, services, ok := config.PrintsOf(before.Identity())
	own := before.Fingerprint()
	require.True(t, ok)
	require.Equal(t, own[:], fingerprint)
	require.Equal(t, before.Prints().Base, base)
	require.Len(t, services, 3)

	for name, c := range map[string]struct {
		main, customer string
		base           bool
		fresh          []string
	}{
		"nothing":        {mainFile, acmeFile + secondProjection, true, nil},
		"a target":       {mainFile, replaced(t, acmeFile, "acme.example", "other.example") + secondProjection, true, nil},
		"a field":        {mainFile, replaced(t, acmeFile, "banana_id: id", "banana: id") + secondProjection, true, []string{"acme/ripeness@archive", "acme/ripeness@hook"}},
		"a filter":       {mainFile, replaced(t, acmeFile, `== "EC"`, `== "CO"`) + secondProjection, true, []string{"acme/ripeness@archive", "acme/ripeness@hook"}},
		"a new service":  {mainFile, acmeFile + replaced(t, secondProjection, "archive:", "other:"), true, []string{"acme/list@other"}},
		"strip patterns": {replaced(t, mainFile, "updated_at", "created_at"), acmeFile + secondProjection, false, nil},
		"a mount":        {replaced(t, mainFile, "mount: lab", "mount: laboratory"), acmeFile + secondProjection, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			after := load(t, c.main, c.customer).Prints()
			require.Equal(t, c.base, after.Base == base)
			var fresh []string
			for service, one := range after.Services {
				if !services[one] {
					fresh = append(fresh, service)
				}
			}
			require.ElementsMatch(t, c.fresh, fresh)
		})
	}
	_, _, _, ok = config.PrintsOf([]byte("of no configuration"))
	require.False(t, ok)
}
