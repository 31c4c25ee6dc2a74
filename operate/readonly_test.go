package operate_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// unprivileged is the number of a user without files in a project.
const unprivileged = 65534

// Who may only read the files of a project can look at it with the commands that
// only look, while no process runs, and changes nothing by it.
func TestLookingWithoutTheRightToWrite(t *testing.T) {
	w := &world{Project: harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})}
	w.Append("events.jsonl", harness.Event(0, "B-007", "green")+`{"broken`+"\n")
	w.Drain()
	require.NoError(t, os.Chmod(filepath.Dir(w.Dir), 0o755)) // #nosec G302 -- of this test alone
	binary := filepath.Join(t.TempDir(), "weir")             // where others may look
	require.NoError(t, os.Link(harness.Binary(t), binary))
	chmod := func(file, folder fs.FileMode) (names []string) {
		require.NoError(t, filepath.WalkDir(w.Dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			names = append(names, path)
			if d.IsDir() {
				return os.Chmod(path, folder)
			}
			return os.Chmod(path, file)
		}))
		return names
	}
	before := chmod(0o444, 0o555)
	t.Cleanup(func() { chmod(0o644, 0o755) })
	asked := func(args ...string) (out, log string, code int) {
		cmd := exec.Command(binary, append(args, "-c", w.Path("weir.yaml"))...)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: unprivileged, Gid: unprivileged}}
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_ = cmd.Run() // its exit status is asked for
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	for _, look := range []struct{ args, want string }{
		{"explain B-007", "verdict"},
		{"audit", "no operator's actions"},
		{"dlq list", "bad_json"},
		{"dlq list 1", "broken"},
		{"noise", "events"},
		{"plan", "1 stored entit"},
	} {
		out, log, code := asked(strings.Fields(look.args)...)
		require.Zero(t, code, "%s: %s", look.args, log)
		require.Contains(t, out, look.want, look.args)
	}
	_, log, code := asked("dlq", "discard", "1", "--yes")
	require.Equal(t, 1, code)
	require.Contains(t, log, "readonly")
	_, log, code = asked("replay", "--all")
	require.Equal(t, 1, code, log)
	require.Equal(t, before, chmod(0o644, 0o755), "nothing was made")
}

// What an operator hands over has bounds, and is told so.
func TestBoundsOfWhatIsHandedOver(t *testing.T) {
	w := &world{Project: harness.NewProject(t, map[string]string{
		"weir.yaml":           "sources: {events: {file: {path: events.jsonl}, entity: id, max_event: 1KiB}}\ncustomers: [\"customers/*.yaml\"]\nadmin: {listen: \"127.0.0.1:0\"}\n",
		"customers/acme.yaml": "customer: acme\nprojections: {all: {fields: {id: id}, deliver: {out: {file: {path: ../out/acme.jsonl}}}}}\n",
		"events.jsonl":        `{"broken` + "\n",
	})}
	w.Drain()
	refused := func(code int, want, command string, args ...string) {
		t.Helper()
		p := w.Start(command, args...)
		require.Equal(t, code, p.Wait())
		require.Contains(t, p.Log.String(), want)
	}
	for _, command := range []string{"replay --all", "reset --all --yes", "reconcile --fix --yes", "dlq replay 1", "dlq discard 1", "dlq edit 1 --file fixed.json"} {
		refused(2, "--reason", command, "--reason", strings.Repeat("x", 1025))
		refused(2, "UTF-8", command, "--reason", "\xff")
	}
	large := `{"id":"` + strings.Repeat("x", 1<<10) + `"}` + "\n"
	w.Write("fixed.json", large)
	refused(1, "larger than 1024 bytes", "dlq edit 1", "--file", w.Path("fixed.json"))
	exact := `{"id":"a","p":"` + strings.Repeat("x", 1<<10-17) + `"}`
	require.Len(t, exact, 1<<10)
	w.Write("fixed.json", exact+"\n")
	w.Start("dlq edit 1", "--file", w.Path("fixed.json"), "--reason", strings.Repeat("x", 1024)).Ok()
	w.Start("dlq replay 1 --wait").Ok()
	require.Empty(t, w.Letters())
}
