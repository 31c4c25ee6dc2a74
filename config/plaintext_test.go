package config_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/webhook"
)

// The fixture of TestFaults has plaintext in every place. Where each of them says
// insecure, it loads; what stays on this machine needs nothing.
func TestPlaintextThatIsWanted(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("testdata/faults/plaintext/" + name)
		require.NoError(t, err)
		return string(text)
	}
	main, customer := read("weir.yaml"), read("customers/acme.yaml")
	load := func(change func(string) string) error {
		_, err := assemble.Load(write(t, map[string]string{"weir.yaml": change(main), "customers/acme.yaml": change(customer)}), env)
		return err
	}
	require.Error(t, load(func(s string) string { return s }))
	places := regexp.MustCompile(`url: |address: |brokers: |listen: `)
	require.Len(t, places.FindAllString(main+customer, -1), 16)
	require.NoError(t, load(func(s string) string {
		return places.ReplaceAllStringFunc(s, func(key string) string { return "insecure: true, " + key })
	}))
	// One place that does not say it is one fault.
	for i := range 16 {
		n := -1
		err := load(func(s string) string {
			return places.ReplaceAllStringFunc(s, func(key string) string {
				if n++; n == i {
					return key
				}
				return "insecure: true, " + key
			})
		})
		var faults *config.Faults
		require.ErrorAs(t, err, &faults, "place %d", i)
		require.Len(t, faults.List, 1, "%v", err)
	}
	// Encrypted, or here.
	for _, change := range [][]string{
		{"sslmode=require", "sslmode=verify-full", "host=db.example dbname=crm", "host=db.example sslmode=verify-ca", "127.0.0.1,db.example/shop", "127.0.0.1,db.example/shop?sslmode=require&sslrootcert=ca.pem"},
		{"db.example", "localhost", "sslmode=require", "sslmode=disable"},
		{"postgres://weir:${PASSWORD}@db.example/weir?sslmode=require", "host=/run/postgresql dbname=weir", "host=db.example dbname", "host=/run/postgresql dbname", "127.0.0.1,db.example", "[::1]:5433"},
	} {
		here := strings.NewReplacer(append(change,
			"10.0.0.1", "127.0.0.7", "kafka.example", "localhost", "other.example", "127.0.0.1", "0.0.0.0", "127.0.0.1", `":9600"`, `"[::1]:9600"`,
			"[2001:db8::1]", "[::1]", "ch.example:9000/shop", "ch.example:9440/shop?secure=true", "?skip_verify=true", "", "?skip_verify=", "", "?alt_hosts=ch.example:9000", "",
			"http://acme.example", "http://127.0.0.1:8080", "169.254.169.254", "203.0.113.7", "[::ffff:10.1.2.3]", "10.acme.example",
		)...)
		require.NoError(t, load(here.Replace))
	}
}

// Webhooks are kept from private addresses, by any name, unless
// they say otherwise or name this machine.
func TestWebhooksAreKeptFromPrivateAddresses(t *testing.T) {
	for url, want := range map[string]bool{
		`url: "https://acme.example/hook"`:                   true,
		`insecure: true, url: "https://acme.example/hook"`:   false,
		`url: "http://127.0.0.1:9/hook"`:                     false,
		`url: "https://localhost/hook"`:                      false,
		`url: "https://localhost.acme.example/hook"`:         true,
		`insecure: false, url: "https://127.0.0.1.nip.io/x"`: true,
	} {
		c := load(t, mainFile, replaced(t, acmeFile, `url: "https://acme.example/"`, url))
		require.Equal(t, want, c.Projections[0].Deliver[1].Sink.(*webhook.Config).DenyPrivate, url)
	}
}

// The environment counts as it does for libpq.
func TestPlaintextByTheEnvironment(t *testing.T) {
	for _, c := range []struct {
		url  string
		env  map[string]string
		good bool
	}{
		{"postgres://db.example/weir", nil, false},
		{"postgres://db.example/weir", map[string]string{"PGSSLMODE": "verify-full"}, true},
		{"postgres://db.example/weir?sslmode=disable", map[string]string{"PGSSLMODE": "verify-full"}, false},
		{"user=weir", nil, true},
		{"user=weir", map[string]string{"PGHOST": "db.example"}, false},
		{"dbname=weir", map[string]string{"PGHOST": "127.0.0.1"}, true},
	} {
		_, err := assemble.Load(write(t, map[string]string{"weir.yaml": strings.Replace(mainFile, "${STORE}", c.url, 1), "customers/acme.yaml": acmeFile}), func(name string) (string, bool) {
			if name == "HOOK" {
				return secrets("hunter2")(name)
			}
			v, ok := c.env[name]
			return v, ok
		})
		require.Equal(t, c.good, err == nil, "%+v: %v", c, err)
	}
}
