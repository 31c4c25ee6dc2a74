package pipeline

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// A stage that waits for a server which does not answer is cut off after
// shutdown.timeout, as at the end of the process, and that is said.
func TestStageIsCutOffWhenItRestarts(t *testing.T) {
	process, stop := context.WithCancel(t.Context())
	start := func(timeout time.Duration) (*stageOptions, *bytes.Buffer) {
		var said bytes.Buffer
		o := &stageOptions{
			cfg: &config.Config{Shutdown: config.Shutdown{Timeout: config.Duration(timeout)}}, log: slog.New(slog.NewTextHandler(&said, nil)),
			active: &activation{}, limit: process,
		}
		o.active.now.Store(newSettings(nil, nil, nil))
		return o, &said
	}
	p, said := start(time.Millisecond)
	hangs := p.newLimit("deliver")
	ended := hangs.stopping()
	<-hangs.ctx.Done() // what the stage waits with
	ended()
	require.Equal(t, []string{"deliver"}, p.active.now.Load().abandoned())
	require.Contains(t, said.String(), "stage=deliver within=1ms")

	p, said = start(time.Hour)
	soon := p.newLimit("decide")
	ended = soon.stopping()
	require.NoError(t, soon.ctx.Err())
	ended()
	require.Error(t, soon.ctx.Err(), "nothing of it is left")
	require.Empty(t, p.active.now.Load().abandoned())
	require.Empty(t, said.String())

	// At the end of the process its clock counts, and its own line of the log.
	last := p.newLimit("deliver")
	ended = last.stopping()
	stop()
	<-last.ctx.Done()
	ended()
	require.Empty(t, p.active.now.Load().abandoned())
	require.Empty(t, said.String())
}
