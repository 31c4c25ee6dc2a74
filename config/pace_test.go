package config_test

import (
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// paces loads two services of a customer with a pace, the second into a topic, and returns theirs.
func paces(t *testing.T, customer, file, topic string) ([]string, error) {
	t.Helper()
	path := write(t, map[string]string{
		"weir.yaml": "sources: {s: {file: {path: s.jsonl}, entity: id}}\ncustomers: [acme.yaml]\n",
		"acme.yaml": "customer: acme\n" + customer + "\nprojections:\n  p:\n    fields: {id: id}\n    deliver:\n      a: {file: {path: a.jsonl}" + file +
			"}\n      b: {kafka: {brokers: ['127.0.0.1:9092'], topic: t}" + topic + "}\n",
	})
	cfg, err := config.Load(path, nil, assemble.Registry())
	if err != nil {
		return nil, err
	}
	var all []string
	for _, s := range cfg.Services() {
		all = append(all, s.Delivery.Pace.String())
	}
	return all, nil
}

func TestPaceOfAService(t *testing.T) {
	for _, c := range []struct{ customer, file, topic, a, b, refused string }{
		{},
		{customer: "pace: 50/s", a: "at most 50/s, 50 at once", b: "at most 50/s, 50 at once"},
		{customer: "pace: {rate: 90/m, settle: 2s}", a: "quiet for 2s, 20s after its first change at the latest; at most 1.5/s, 1 at once", b: "at most 1.5/s, 1 at once"},
		{customer: "pace: {rate: 50/s, burst: 100, settle: 2s, settle_max: 30s}", file: ", pace: off", b: "at most 50/s, 100 at once"},
		{customer: "pace: 50/s", file: ", pace: {settle: 5m}", topic: ", pace: 90/h", a: "quiet for 5m, 10m after its first change at the latest", b: "at most 1.5/m, 1 at once"},
		{topic: ", pace: {settle: 2s}", refused: "does not fit a Kafka topic"},
		{customer: "pace: {settle: 2s, settle_max: 1s}", refused: "settle_max below settle"},
		{customer: "pace: {settle_max: 1s}", refused: "settle_max without settle"},
		{customer: "pace: {rate: 5/s, settle: 0s, settle_max: 1s}", refused: "settle_max without settle"},
		{file: ", pace: {burst: 2}", refused: "a burst without a rate"},
		{customer: "pace: 50", refused: "is not a rate"},
		{customer: "pace: 0/s", refused: "is not a rate"},
		{customer: "pace: {settle: 6m}", refused: "5m"},
	} {
		all, err := paces(t, c.customer, c.file, c.topic)
		if c.refused != "" {
			require.ErrorContains(t, err, c.refused)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{c.a, c.b}, all, c.customer)
	}
}

func TestRatesKeepTheirText(t *testing.T) {
	for _, text := range []string{"50/s", "1.5/s", "30/m", "1/m", "20/h", "off"} {
		var r config.Rate
		require.NoError(t, r.UnmarshalText([]byte(text)))
		require.Equal(t, text, r.String())
	}
}
