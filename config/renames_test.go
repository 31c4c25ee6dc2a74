package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

const renamesMain = "sources: {lab: {file: {path: a.jsonl}, entity: id}}\ncustomers: [\"*.customer.yaml\"]\n"

// customerFile is acme's file, with extra keys where a rename would put them.
func customerFile(customer, projection, sink, check string) string {
	return "customer: " + customer + "\nprojections:\n  " + projection + "\n    fields: {id: id}\n    deliver:\n      " + sink + "\nchecks:\n  " + check + "\n"
}

func loadCustomers(t *testing.T, files map[string]string) (*config.Config, error) {
	t.Helper()
	files["weir.yaml"] = renamesMain
	return assemble.Load(write(t, files), env)
}

// A renamed service is the same to the store, the decisions and the targets: processes with
// either name work side by side, and nothing is sent.
func TestARenameKeepsTheIdentity(t *testing.T) {
	t.Parallel()
	load := func(text string) *config.Config {
		c, err := loadCustomers(t, map[string]string{"a.customer.yaml": text})
		require.NoError(t, err)
		return c
	}
	out := "{file: {path: /tmp/weir/out.jsonl}}"
	before := load(customerFile("acme", "prices:", "hook: "+out, "crm: {}"))
	for name, after := range map[string]string{
		"customer":          customerFile("acme-corp\nwas: acme", "prices:", "hook: "+out, "crm: {}"),
		"projection, check": customerFile("acme", "list:\n    was: acme/prices", "hook: "+out, "accounts: {was: acme/crm@check}"),
		"sink, check":       customerFile("acme", "prices:", "web: {was: acme/prices@hook, file: {path: /tmp/weir/out.jsonl}}", "accounts: {was: acme/crm@check}"),
		"all": customerFile("acme-corp\nwas: acme", "list:\n    was: acme/prices",
			"web: {was: acme/prices@hook, file: {path: /tmp/weir/out.jsonl}}", "accounts: {was: acme/crm@check}"),
	} {
		c := load(after)
		require.Equal(t, before.Identity(), c.Identity(), name)
		require.Equal(t, before.AllServices()[1].Name, c.AllServices()[1].Name, name)
		for _, s := range c.AllServices() {
			require.Equal(t, s.Name, c.FirstName(s.Current), name)
			require.Equal(t, s.Name, c.FirstName(s.Name), name)
		}
		require.NotEmpty(t, c.Renamed(), name)
	}
	// A rename of a projection by its sinks alone is another fingerprint, under the same prints:
	// entities are evaluated for no service.
	bySinks := load(customerFile("acme", "list:", "hook: {was: acme/prices@hook, file: {path: /tmp/weir/out.jsonl}}", "crm: {}"))
	require.Equal(t, before.Prints(), bySinks.Prints())
	require.NotEqual(t, before.Prints(), load(customerFile("acme", "list:", "hook: "+out, "crm: {}")).Prints())
}

// Every name has one meaning, so each first name is that of one service.
func TestRenamesThatAreRefused(t *testing.T) {
	t.Parallel()
	out := "{file: {path: out.jsonl}}"
	plain := func(customer string) string {
		return customerFile(customer, "prices:", "hook: {file: {path: "+customer[:4]+".jsonl}}", "crm: {}")
	}
	for want, files := range map[string][]string{
		"a.customer.yaml:2:6: was: is the customer's own name":                      {plain("acme\nwas: acme")},
		"a.customer.yaml:2:6: was: is not a usable name":                            {plain("acme\nwas: Acme")},
		"a.customer.yaml:2:6: was: is a customer in ":                               {plain("acme\nwas: zest"), plain("zest")},
		"b.customer.yaml:2:6: was: is the first name of the customer in ":           {plain("acme\nwas: sour"), plain("zest\nwas: sour")},
		"projections.list.was: is not the first name of something of customer acme": {customerFile("acme", "list:\n    was: zest/prices", "hook: "+out, "crm: {}")},
		"want acme/projection":      {customerFile("acme", "list:\n    was: acme/prices@hook", "hook: "+out, "crm: {}")},
		"want acme/projection@sink": {customerFile("acme", "list:", "hook: {was: acme/prices, file: {path: out.jsonl}}", "crm: {}")},
		"checks.crm.was: is not the first name of something of customer acme": {customerFile("acme", "list:", "hook: "+out, "crm: {was: acme/crm@hook}")},
		"deliver.web.was: is acme/prices@hook in store and targets, as acme/prices@hook is": {
			customerFile("acme", "prices:", "hook: "+out+"\n      web: {was: acme/prices@hook, file: {path: web.jsonl}}", "crm: {}")},
		// A swap, and a new service under the earlier name of another one.
		"deliver.a.was: was acme/prices@b first, which is the name of another service now; want another name for the other service": {
			customerFile("acme", "prices:", "a: {was: acme/prices@b, file: {path: a.jsonl}}\n      b: {was: acme/prices@a, file: {path: b.jsonl}}", "crm: {}")},
	} {
		all := map[string]string{}
		for i, text := range files {
			all[string(rune('a'+i))+".customer.yaml"] = text
		}
		_, err := loadCustomers(t, all)
		require.ErrorContains(t, err, want)
	}
}

// A first name that the store does not know would make a new service of the renamed one. In
// a chain of renames it stays the first.
func TestFirstNamesThatTheStoreDoesNotKnow(t *testing.T) {
	t.Parallel()
	c, err := loadCustomers(t, map[string]string{"a.customer.yaml": customerFile("acme", "third:\n    was: acme/second", "hook: {file: {path: out.jsonl}}", "crm: {}")})
	require.NoError(t, err)
	require.NoError(t, c.CheckRenames(nil), "a new environment")
	require.NoError(t, c.CheckRenames(map[string]int32{"acme/second@hook": 1}))
	err = c.CheckRenames(map[string]int32{"acme/first@hook": 1, "acme/crm@check": 2})
	require.ErrorContains(t, err, "a.customer.yaml:7:7: acme/third@hook: was acme/second@hook first, which the store does not know; name the service as it was called first, or leave out was; without a service are acme/first@hook")
}

// A leaving customer's projections show no entity.
func TestALeavingCustomerIsShownNothing(t *testing.T) {
	t.Parallel()
	c, err := loadCustomers(t, map[string]string{"a.customer.yaml": customerFile("acme\nleaving: true", "prices:\n    when: doc.price > 1", "hook: {file: {path: out.jsonl}}", "crm: {}")})
	require.NoError(t, err)
	require.Equal(t, "false", c.Projections[0].Spec().When)
	_, err = loadCustomers(t, map[string]string{"a.customer.yaml": customerFile("acme\nleaving: true", "prices:\n    when: doc.price >", "hook: {file: {path: out.jsonl}}", "crm: {}")})
	require.ErrorContains(t, err, "prices.when", "its filter is checked as before")
}
