package assemble

import (
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/gate"
)

// Gate opens the gate of a configuration.
func Gate(c *config.Config) (gate.Gate, error) {
	if v := c.Gate.Valkey; v != nil {
		t, _, err := ClientTLS(v.TLS)
		if err != nil {
			return nil, err
		}
		return gate.NewValkey(gate.ValkeyOptions{
			Addresses: v.Address, Username: v.Username, Password: v.Password.Reveal(), TLS: t, DB: v.DB,
			Prefix: v.Prefix, TTL: c.Gate.TTL.D(), Timeout: v.Timeout.D(),
		})
	}
	return gate.NewMemory(gate.MemoryOptions{Entries: c.Gate.Memory.MaxEntries, TTL: c.Gate.TTL.D()})
}
