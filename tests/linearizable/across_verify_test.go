//go:build verify

package linearizable

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestI3LinearizableAcrossProcesses(t *testing.T) {
	for _, name := range []string{"one history", "another"} {
		t.Run(name, testAcrossProcesses)
	}
}

func testAcrossProcesses(t *testing.T) {
	w := newWorld(t, settings{Seed: rand.Uint64(), Records: 120, Clients: 16, Calls: 20, Pace: 20, Together: 4})
	t.Logf("seed %d", w.base.Seed)
	// By this name the server knows which connections are of this test.
	w.base.URL += fmt.Sprintf("&application_name=weir-linearizable-%x", w.base.Seed)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	// The victim would never end; it is killed during its calls, when
	// it knows of some decisions, its own or not, and a connection has been cut.
	const victim, cutEvery = 0, 150
	killAt := int64(w.base.Records / 3)
	kill, cut := make(chan struct{}), make(chan struct{}, 1)
	total := 0
	w.line = func(process int, e entry) {
		if process == victim && killAt > 0 && (e.Kind == decided && e.Offset >= killAt || e.Kind == taken && e.Next >= killAt) {
			killAt = 0
			close(kill)
		}
		if total++; total%cutEvery == 0 {
			select {
			case cut <- struct{}{}:
			default:
			}
		}
	}
	var children []*child
	for n := range w.base.Together {
		s := w.base
		s.Process = n
		if n == victim {
			s.Calls = 1 << 30
		}
		children = append(children, w.start(ctx, s))
	}

	cutting := cutConnections(ctx, w.base.URL, cut)
	for _, due := range []chan struct{}{kill, cutting.severed} {
		select {
		case <-due:
		case err := <-children[victim].read:
			t.Fatalf("the victim ended by itself: %v", err)
		case <-ctx.Done():
			t.Fatal("the victim makes no calls, or no connection could be cut")
		}
	}
	require.NoError(t, children[victim].command.Process.Kill())
	require.NoError(t, <-children[victim].read, "its log has no fault")
	var ended *exec.ExitError
	require.ErrorAs(t, children[victim].command.Wait(), &ended)
	require.Equal(t, syscall.SIGKILL, ended.Sys().(syscall.WaitStatus).Signal())
	heir := w.base
	heir.Process, heir.Together = len(children), 0
	children = append(children, w.start(ctx, heir))
	for n, c := range children {
		if n != victim {
			assert.NoError(t, c.wait())
		}
	}
	cuts := cutting.stop()
	if t.Failed() {
		t.FailNow()
	}

	h := collect(t, w.store, w.logs, w.inbox)
	requireLinearizable(t, h)
	t.Logf("%d connections were cut", cuts)
	require.Positive(t, cuts, "connections were cut")
	require.Positive(t, h.open, "calls were cut off by the kill")
	require.Positive(t, h.fenced, "zombies were fenced")
	require.Positive(t, h.passed)
}

// cutter cuts connections until it is stopped.
type cutter struct {
	cancel  context.CancelFunc
	severed chan struct{} // closed after the first cut
	cuts    chan int      // receives the number of cuts at the end
}

// cutConnections cuts a connection of this test for each signal.
func cutConnections(ctx context.Context, url string, signals <-chan struct{}) *cutter {
	ctx, cancel := context.WithCancel(ctx)
	c := &cutter{cancel: cancel, severed: make(chan struct{}), cuts: make(chan int, 1)}
	go func() {
		cuts := 0
		defer func() { c.cuts <- cuts }()
		for {
			select {
			case <-signals:
				if n := cutOne(ctx, url); n > 0 {
					if cuts += n; cuts == n {
						close(c.severed)
					}
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return c
}

// stop returns how many connections were cut.
func (c *cutter) stop() int {
	c.cancel()
	return <-c.cuts
}

// cutOne ends one connection in the middle of a statement or a transaction, if
// there is one.
func cutOne(ctx context.Context, url string) int {
	connection, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0
	}
	defer connection.Close(context.WithoutCancel(ctx))
	tag, err := connection.Exec(ctx, `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = current_setting('application_name') AND state <> 'idle' AND pid <> pg_backend_pid()
ORDER BY random() LIMIT 1`)
	if err != nil {
		return 0
	}
	return int(tag.RowsAffected())
}
