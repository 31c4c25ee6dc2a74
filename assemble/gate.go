package assemble

import (
	"cmp"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest/gate"
)

// Gate opens the gate of a configuration.
func Gate(c *config.Config) (gate.Gate, error) {
	if v := c.Gate.Valkey; v != nil {
		t, _, err := v.TLS.Client()
		if err != nil {
			return nil, err
		}
		return gate.NewValkey(gate.ValkeyOptions{
			Addresses: v.Address, Username: v.Username, Password: v.Password.Reveal(), TLS: t, DB: v.DB,
			Prefix: cmp.Or(v.Prefix, "weir:gate"), TTL: c.Gate.TTL.D(), Timeout: v.Timeout.D(),
		}), nil
	}
	return gate.NewMemory(c.Gate.TTL.D(), c.Gate.Memory.MaxEntries), nil
}
