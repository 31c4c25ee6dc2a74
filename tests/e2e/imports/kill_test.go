package imports

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/stretchr/testify/require"
)

// TestKilledBehindAnAppend kills the command that imports at one point in the
// middle of the file.
func TestKilledBehindAnAppend(t *testing.T) {
	killed(t, embedded, crash.FrontAppended, "orders")
}

// killed kills the importing command at a point, in the middle of the file where the
// point is passed per batch. The same command continues. Rows of lab are known by their
// event ids, those of orders by their places in the file.
func killed(t *testing.T, on, point, source string) {
	p := newWorld(t, on)
	p.Write("in.jsonl", file())
	log := filepath.Join(t.TempDir(), "points")
	passing := "2"
	if point == crash.ImportBegun {
		passing = "1"
	}
	env := []string{"WEIR_CRASH=" + point + "@" + source + ":" + passing, "WEIR_CRASH_LOG=" + log}
	command := "import --json --source " + source
	require.NotZero(t, p.StartEnv(env, command, p.Path("in.jsonl")).Wait())
	require.Contains(t, passed(t, log), "killed "+point)
	all := jobs(p)
	require.Len(t, all, 1)
	require.Equal(t, "incomplete", all[0].State)
	done(t, job(t, p.Start(command, p.Path("in.jsonl")).Ok()))
	check(p, source)
	// The same file once more is the same import: nothing happens.
	same := job(t, p.Start(command, p.Path("in.jsonl")).Ok())
	done(t, same)
	require.Len(t, jobs(p), 1)
	check(p, source)
	errors := strings.Split(strings.TrimSpace(p.Start("import show --refused jsonl", same.ID).Ok()), "\n")
	require.Len(t, errors, 1)
	require.Contains(t, errors[0], `"row":47,"line":47,"code":"bad_json"`)
}

// TestTheProcessIsKilled kills the process beside which the command imports. The command does
// not need it, and its successor decides the rows.
func TestTheProcessIsKilled(t *testing.T) {
	t.Parallel()
	p := newWorld(t, embedded)
	p.Write("in.jsonl", file())
	first := p.StartEnv([]string{"WEIR_CRASH=" + crash.DecideCommitted + ":1"}, "run")
	first.Ready(200)
	command := p.Start("import --json --source lab", p.Path("in.jsonl"))
	require.NotZero(t, first.Wait())
	second := p.Start("run")
	second.Ready(200)
	done(t, job(t, command.Ok()))
	second.Terminate()
	require.Zero(t, second.Wait())
	check(p, "lab")
}
