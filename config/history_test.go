package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// The main file sets the history of webhooks, other sinks have none, and
// a service overrides it; keys that it leaves out are the main file's again.
func TestHistoryOfServices(t *testing.T) {
	const customer = `
customer: acme
projections:
  all:
    fields: {id: id}
    deliver:
      hook:
        webhook: {url: "https://acme.example/in", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}
      none:
        webhook: {url: "https://acme.example/in", secret: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}
        history: {keep: 0s}
      archive:
        file: {path: out.jsonl}
      topic:
        kafka: {topic: acme}
      asked:
        kafka: {topic: other}
        history: {}
      long:
        kafka: {topic: third}
        history: {keep: 30d}
`
	for main, want := range map[string]config.History{
		"":                    {Keep: config.Duration(7 * 24 * time.Hour)},
		"history: {keep: 2d}": {Keep: config.Duration(48 * time.Hour)},
		"history: {keep: 0s}": {},
	} {
		c, err := assemble.Load(write(t, map[string]string{
			"weir.yaml":           "sources: {events: {file: {path: e.jsonl}, entity: id}}\nkafka: {brokers: [\"127.0.0.1:9092\"]}\nstore: {postgres: {url: \"postgres://127.0.0.1/weir\"}}\ncustomers: [\"customers/*.yaml\"]\n" + main,
			"customers/acme.yaml": customer,
		}), nil)
		require.NoError(t, err)
		got := map[string]config.OwnHistory{}
		for _, s := range c.Services() {
			got[s.Delivery.Name] = *s.Delivery.History
		}
		none, long := config.OwnHistory(want), config.OwnHistory(want)
		none.Keep, long.Keep = 0, config.Duration(30*24*time.Hour)
		require.Equal(t, map[string]config.OwnHistory{
			"hook": config.OwnHistory(want), "none": none, "archive": none, "topic": none, "asked": config.OwnHistory(want), "long": long,
		}, got, main)
	}
}
