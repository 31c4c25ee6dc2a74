package kafka

import (
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
)

// A default group tells pipelines apart, also where they share only the source's brokers.
func TestGroupOf(t *testing.T) {
	shared := sources.Env{StoreID: "store"}
	own := config.Cluster{Brokers: []string{"b:9092"}}
	for _, c := range []struct {
		config Config
		env    sources.Env
		want   string
	}{
		{Config{Group: "mine", Cluster: own}, sources.Env{State: "inbox", StoreID: "store"}, "mine"},
		{Config{Group: "weir.source.lab", derived: true}, shared, "weir.source.lab"},
		{Config{Group: "weir.source.lab", derived: true, Cluster: own}, shared, "weir.source.lab.store"},
		{Config{Group: "weir.source.lab", derived: true, Cluster: own}, sources.Env{State: "inbox", StoreID: "store"}, "weir.source.lab.inbox"},
	} {
		require.Equal(t, c.want, c.config.groupOf(c.env))
	}
}
