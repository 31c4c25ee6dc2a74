package config_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// guards loads two services of a customer with a guard, and returns theirs.
func guards(t *testing.T, customer, service string) ([]config.Guard, error) {
	t.Helper()
	path := write(t, map[string]string{
		"weir.yaml": "sources: {s: {file: {path: s.jsonl}, entity: id}}\ncustomers: [acme.yaml]\n",
		"acme.yaml": fmt.Sprintf("customer: acme\n%s\nprojections:\n  p:\n    fields: {id: id}\n    deliver:\n      a: {file: {path: a.jsonl}}\n      b: {file: {path: b.jsonl}%s}\n", customer, service),
	})
	cfg, err := config.Load(path, nil, assemble.Registry())
	if err != nil {
		return nil, err
	}
	var all []config.Guard
	for _, s := range cfg.Services() {
		all = append(all, *s.Delivery.Guard)
	}
	return all, nil
}

func TestGuardOfAService(t *testing.T) {
	minutes := config.Duration(10 * time.Minute)
	usual := config.Guard{Retract: 0.05, Window: minutes, Min: 50}
	for _, c := range []struct {
		customer, service string
		a, b              config.Guard
	}{
		{"", "", usual, usual},
		{"guard: off", "", config.Guard{Window: minutes, Min: 50}, config.Guard{Window: minutes, Min: 50}},
		{"guard: 2%", ", guard: {update: 30%, window: 1h}", config.Guard{Retract: 0.02, Window: minutes, Min: 50},
			config.Guard{Retract: 0.05, Update: 0.3, Window: config.Duration(time.Hour), Min: 50}},
		{"", ", guard: off", usual, config.Guard{Window: minutes, Min: 50}},
		{"guard: {retract: off, update: 0.5%, min: 7}", "", config.Guard{Update: 0.005, Window: minutes, Min: 7}, config.Guard{Update: 0.005, Window: minutes, Min: 7}},
	} {
		got, err := guards(t, c.customer, c.service)
		require.NoError(t, err, c.customer)
		require.Equal(t, []config.Guard{c.a, c.b}, got, "%s %s", c.customer, c.service)
		require.Equal(t, c.a == usual, got[0].IsDefault())
	}
}

func TestSenselessGuards(t *testing.T) {
	for customer, want := range map[string]string{
		"guard: {retract: 5}":   `acme.yaml:2:18: guard.retract: has no percent sign`,
		"guard: {retract: 0%}":  `would hold every change: value "0%"; want a share above 0%, or off`,
		"guard: {update: 100%}": `would hold nothing: value "100%"; want a share below 100%, or off`,
		"guard: {update: many}": `is not a share: value "many"; want a share like "5%", or off`,
		"guard: {window: 10}":   `has no unit`,
		"guard: {window: 1s}":   `guard.window`,
		"guard: {min: 0}":       `guard.min`,
		"guard: {retracts: 5%}": `unknown key`,
		"guard: on":             `is not a share`,
	} {
		_, err := guards(t, customer, "")
		require.ErrorContains(t, err, want, customer)
	}
}
