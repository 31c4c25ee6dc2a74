package imports

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// ofReceiving are the points of who receives the file.
var ofReceiving = map[string]bool{crash.ImportReceiving: true, crash.ImportSealed: true}

// TestKilledBehindAnAppend kills the command that imports at one point in the
// middle of the file.
func TestKilledBehindAnAppend(t *testing.T) {
	killed(t, embedded, crash.ImportAppended, "orders")
}

// killed has the process that imports killed at a point, in the middle of the
// file where the point is passed per chunk. The import is resumed by the same command
// again, or another process. Rows of lab are known by their event ids, those of
// orders by their places in the file.
func killed(t *testing.T, on, point, source string) {
	p := newWorld(t, on)
	p.Write("in.jsonl", file())
	log := filepath.Join(t.TempDir(), "points")
	passing := "2"
	if point == crash.ImportSealed {
		passing = "1"
	}
	env := []string{"WEIR_CRASH=" + point + "@" + source + ":" + passing, "WEIR_CRASH_LOG=" + log}
	command := "import --json --source " + source
	if on == embedded || ofReceiving[point] {
		// The command is killed, and given again.
		require.NotZero(t, p.StartEnv(env, command+" --wait", p.Path("in.jsonl")).Wait())
		done(t, job(t, p.Start(command+" --wait", p.Path("in.jsonl")).Ok()))
	} else {
		// The file is there; the process that takes it in is killed, and another
		// one runs beside it.
		queued := job(t, p.Start(command, p.Path("in.jsonl")).Ok())
		require.Equal(t, "queued", queued.State)
		require.NotZero(t, p.StartEnv(env, "run --role ingest").Wait())
		other := p.Start("run --role ingest")
		other.Ready(200)
		harness.Eventually(t, "the end of the import", func() error {
			return harness.Want(job(t, p.Start("import show --json", queued.ID).Ok()).State, "done")
		})
		done(t, job(t, p.Start("import show --json", queued.ID).Ok()))
		other.Terminate()
		require.Zero(t, other.Wait())
	}
	require.Contains(t, passed(t, log), "killed "+point)
	check(p, source)
	// The same file once more is the same job: nothing happens.
	same := job(t, p.Start(command+" --wait", p.Path("in.jsonl")).Ok())
	done(t, same)
	finished := 0
	for _, j := range jobs(p) {
		if j.State == "done" {
			finished++
		}
	}
	require.Equal(t, 1, finished)
	check(p, source)
	errors := strings.Split(strings.TrimSpace(p.Start("import errors", same.ID).Ok()), "\n")
	if source == "lab" {
		require.Contains(t, errors[0], `"row":46,"line":46,"status":"duplicate"`)
		errors = errors[1:]
	}
	require.Len(t, errors, 1)
	require.Contains(t, errors[0], `"row":47,"line":47,"status":"invalid","reason":"bad_json: `)
}
