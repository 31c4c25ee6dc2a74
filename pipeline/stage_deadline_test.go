package pipeline

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// A stage that waits for a server which does not answer is cut off after
// shutdown.timeout, as at the end of the process, and that is said.
func TestStageIsCutOffWhenItRestarts(t *testing.T) {
	start := func(timeout time.Duration) (*process, *bytes.Buffer) {
		var said bytes.Buffer
		p := newProcess(Options{Config: &config.Config{Shutdown: config.Shutdown{Timeout: config.Duration(timeout)}}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
		p.active.now.Store(newSettings(nil, nil, nil))
		return p, &said
	}
	p, said := start(time.Millisecond)
	hangs := p.newLimit(p.end.deliver.ctx, "deliver")
	ended := hangs.stopping()
	<-hangs.ctx.Done() // what the stage waits with
	ended()
	require.Equal(t, []string{"deliver"}, p.active.now.Load().abandoned())
	require.Contains(t, said.String(), "stage=deliver within=1ms")

	p, said = start(time.Hour)
	soon := p.newLimit(p.end.decide.ctx, "decide")
	ended = soon.stopping()
	require.NoError(t, soon.ctx.Err())
	ended()
	require.Error(t, soon.ctx.Err(), "nothing of it is left")
	require.Empty(t, p.active.now.Load().abandoned())
	require.Empty(t, said.String())

	// At the end of the process its clock counts, and its own line of the log.
	last := p.newLimit(p.end.deliver.ctx, "deliver")
	ended = last.stopping()
	p.end.deliver.end()
	<-last.ctx.Done()
	ended()
	require.Empty(t, p.active.now.Load().abandoned())
	require.Empty(t, said.String())
}
