package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait; a machine that is busy with other tests needs it.
const patience = 60 * time.Second

// poll is how often a condition is looked at.
const poll = 20 * time.Millisecond

// project is a folder with a configuration.
type project struct {
	t   testing.TB
	dir string
}

func newProject(t testing.TB, files map[string]string) project {
	p := project{t, t.TempDir()}
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

func (p project) path(name string) string { return filepath.Join(p.dir, name) }

func (p project) write(name, text string) {
	require.NoError(p.t, os.MkdirAll(filepath.Dir(p.path(name)), 0o755))
	require.NoError(p.t, os.WriteFile(p.path(name), []byte(text), 0o644))
}

func (p project) append(name, text string) {
	f, err := os.OpenFile(p.path(name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	require.NoError(p.t, err)
	_, err = f.WriteString(text)
	require.NoError(p.t, err)
	require.NoError(p.t, f.Close())
}

// process is one running pipeline.
type process struct {
	t      testing.TB
	cmd    *exec.Cmd
	out    bytes.Buffer // to be read after done
	log    buffer
	done   chan struct{}
	code   int
	admin  string // address of the operators' listener, once awaited
	ingest string
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start starts the pipeline with a command of its own and the project's
// configuration. It is killed at the end of the test if it still runs.
func (p project) start(command string, args ...string) *process {
	return p.startAs("weir.yaml", command, args...)
}

func (p project) startAs(config, command string, args ...string) *process {
	p.t.Helper()
	words := append(strings.Fields(command), "-c", p.path(config))
	pr := &process{t: p.t, cmd: exec.Command(binary, append(words, args...)...), done: make(chan struct{})}
	pr.cmd.Stdout, pr.cmd.Stderr = &pr.out, &pr.log
	require.NoError(p.t, pr.cmd.Start())
	go func() {
		defer close(pr.done)
		_ = pr.cmd.Wait()
		pr.code = pr.cmd.ProcessState.ExitCode()
	}()
	p.t.Cleanup(func() {
		pr.kill()
		if p.t.Failed() {
			p.t.Logf("%s: exit %d\n%s", strings.Join(words, " "), pr.code, tail(pr.log.String(), 60))
		}
	})
	return pr
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// wait waits for the end and gives the exit status.
func (pr *process) wait() int {
	pr.t.Helper()
	select {
	case <-pr.done:
	case <-time.After(patience):
		_ = pr.cmd.Process.Signal(syscall.SIGQUIT) // stacks into the log
		<-pr.done
		require.FailNow(pr.t, "the process did not end", tail(pr.log.String(), 200))
	}
	return pr.code
}

// ok waits for the end, which must be without failure, and gives standard output.
func (pr *process) ok() string {
	pr.t.Helper()
	require.Zero(pr.t, pr.wait(), tail(pr.log.String(), 60))
	return pr.out.String()
}

func (pr *process) kill() {
	_ = pr.cmd.Process.Kill()
	<-pr.done
}

func (pr *process) terminate() { _ = pr.cmd.Process.Signal(syscall.SIGTERM) }

func (pr *process) ended() bool {
	select {
	case <-pr.done:
		return true
	default:
		return false
	}
}

// summary is what run --json prints.
type summary struct {
	Read     int64 `json:"events_read"`
	Repeated int64 `json:"repeated"`
	Stale    int64 `json:"stale"`
	Noise    int64 `json:"noise"`
	Dead     int64 `json:"dead_letters"`
	Customer []struct {
		Customer  string `json:"customer"`
		Held      int64  `json:"held_back"`
		Passed    int64  `json:"passed"`
		Delivered int64  `json:"delivered"`
	} `json:"customers"`
}

func (s summary) delivered() (n int64) {
	for _, c := range s.Customer {
		n += c.Delivered
	}
	return n
}

// drain runs the pipeline until it is idle.
func (p project) drain() summary {
	p.t.Helper()
	var s summary
	require.NoError(p.t, json.Unmarshal([]byte(p.start("run --until-idle --json").ok()), &s))
	return s
}
