package e2e

import (
	"fmt"
	"net"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// A process that is told to stop while it still waits for a server that does
// not answer ends in order, as a deployment that is taken back expects.
func TestTerminateWhileStarting(t *testing.T) {
	for _, more := range []string{
		"store: {postgres: {url: \"postgres://weir@%s/weir?sslmode=disable\"}}\nkafka: {brokers: [\"127.0.0.1:9\"]}\n",
		"kafka: {brokers: [%q]}\n",
	} {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		p := harness.Simple(t, fmt.Sprintf(more, silent.Addr()), map[string]string{"acme": harness.FileSink("acme")})
		run := p.Start("run")
		c, err := silent.Accept() // and no answer
		require.NoError(t, err)
		run.Terminate()
		run.Ok()
		require.NoError(t, c.Close())
		require.NoError(t, silent.Close())
	}
}
