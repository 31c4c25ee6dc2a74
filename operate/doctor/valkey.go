package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/valkey-io/valkey-go"
)

// valkey examines the gate's server.
func (e *examination) valkey(ctx context.Context) error {
	v := e.cfg.Gate.Valkey
	tls, _, err := v.TLS.Client()
	if err != nil {
		return err
	}
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: v.Address, ForceSingleClient: len(v.Address) == 1, Username: v.Username, Password: v.Password.Reveal(),
		TLSConfig: tls, SelectDB: v.DB, ClientName: "weir-doctor", DisableCache: true,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	before := e.now()
	clock, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
	if err != nil {
		return err
	}
	if len(clock) == 2 {
		e.clock("gate", time.Unix(clock[0], clock[1]*1000), before, e.now())
	}
	text, err := client.Do(ctx, client.B().Info().Build()).ToString()
	if err != nil {
		return err
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	if version := info["valkey_version"]; version != "" {
		e.fact("Valkey %s", version)
	} else {
		e.fact("Redis %s", info["redis_version"])
	}
	policy := info["maxmemory_policy"]
	switch limit := info["maxmemory"]; {
	case limit == "0" || limit == "":
		e.fact("memory without a limit of its own")
	case policy == "noeviction":
		e.add("gate", operate.LevelDegraded, "maxmemory-policy is noeviction: when its memory is full it takes no marks, and repeated events pass it", "CONFIG SET maxmemory-policy volatile-ttl")
	default:
		e.fact("%s when its memory is full", policy)
	}
	if info["role"] == "slave" {
		e.add("gate", operate.LevelDown, "it is a replica, which takes no marks", "let gate.valkey.address name the primary")
	}
	return nil
}
