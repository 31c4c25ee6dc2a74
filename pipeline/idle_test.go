package pipeline

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run until idle that is stopped before it has looked along the flow does not say
// that nothing is left.
func TestARunThatIsStoppedAtItsStartHasWorkLeft(t *testing.T) {
	p := openEmbedded(t, AllRoles, "sources: {lab: {file: {path: lab.jsonl}, entity: id}}")
	p.opt.UntilIdle = true
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, p.Run(ctx))
	require.NotEmpty(t, p.Waits())
}

// Nor one that is stopped between its two looks: what deliver put into the inbox
// after the first one is found at the end.
func TestARunThatIsStoppedBetweenItsLooksLooksAgain(t *testing.T) {
	p := openEmbedded(t, AllRoles, "sources: {lab: {file: {path: lab.jsonl}, entity: id}}")
	p.idle.left.Store(&[]Wait{})
	require.NoError(t, p.store.Close())
	p.idle.lookAgain(t.Context())
	require.NotEmpty(t, p.Waits())
}
