package harness

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

// Patience bounds every wait. It only decides when a test fails: a
// machine that is busy with other tests may be many times slower than a free one.
const Patience = 3 * time.Minute

// Poll is how often a condition is looked at.
const Poll = 20 * time.Millisecond

// Project is a folder with a configuration.
type Project struct {
	T   testing.TB
	Dir string
	// LogBrokers, if given, have its logs, whose names begin with LogPrefix. Else they are
	// in the SQLite file.
	LogBrokers []string
	LogPrefix  string
}

// NewProject makes a project in a folder of its own: file name to text.
func NewProject(t testing.TB, files map[string]string) Project {
	p := Project{T: t, Dir: t.TempDir()}
	for name, text := range files {
		p.Write(name, text)
	}
	return p
}

// Path is the path of a file of the project.
func (p Project) Path(name string) string { return filepath.Join(p.Dir, name) }

// Write writes a file of the project.
func (p Project) Write(name, text string) {
	require.NoError(p.T, os.MkdirAll(filepath.Dir(p.Path(name)), 0o755))
	require.NoError(p.T, os.WriteFile(p.Path(name), []byte(text), 0o644))
}

// Read reads a file of the project.
func (p Project) Read(name string) string {
	text, err := os.ReadFile(p.Path(name))
	require.NoError(p.T, err)
	return string(text)
}

// Replace puts a new text in the place of a file in one step, for files that a
// running process looks at by itself: it sees the old text or the new one, and
// never a part.
func (p Project) Replace(name, text string) {
	p.T.Helper()
	p.Write(name+".new", text)
	require.NoError(p.T, os.Rename(p.Path(name+".new"), p.Path(name)))
}

// Append appends to a file of the project.
func (p Project) Append(name, text string) {
	f, err := os.OpenFile(p.Path(name), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	require.NoError(p.T, err)
	_, err = f.WriteString(text)
	require.NoError(p.T, err)
	require.NoError(p.T, f.Close())
}

// Process is one running pipeline.
type Process struct {
	T      testing.TB
	Cmd    *exec.Cmd
	Out    bytes.Buffer // to be read after done
	Log    Buffer
	Done   chan struct{}
	Code   int
	Admin  string // address of the operators' listener, once awaited
	Ingest string
}

// Buffer may be read while it is written.
type Buffer struct {
	Mu sync.Mutex
	B  bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.Write(p)
}

func (b *Buffer) String() string {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return b.B.String()
}

// Start starts the pipeline with a command of its own and the project's
// configuration. It is killed at the end of the test if it still runs.
func (p Project) Start(command string, args ...string) *Process {
	return p.start(nil, "weir.yaml", command, args)
}

// StartAs is Start with another main configuration file.
func (p Project) StartAs(config, command string, args ...string) *Process {
	p.T.Helper()
	return p.start(nil, config, command, args)
}

// StartEnv is Start with further variables of the environment, NAME=value.
func (p Project) StartEnv(env []string, command string, args ...string) *Process {
	p.T.Helper()
	return p.start(env, "weir.yaml", command, args)
}

func (p Project) start(env []string, config, command string, args []string) *Process {
	p.T.Helper()
	words := append(strings.Fields(command), "-c", p.Path(config))
	pr := &Process{T: p.T, Cmd: exec.Command(Binary(p.T), append(words, args...)...), Done: make(chan struct{})}
	pr.Cmd.Env = append(os.Environ(), env...)
	pr.Cmd.Stdout, pr.Cmd.Stderr = &pr.Out, &pr.Log
	require.NoError(p.T, pr.Cmd.Start())
	go func() {
		defer close(pr.Done)
		_ = pr.Cmd.Wait()
		pr.Code = pr.Cmd.ProcessState.ExitCode()
	}()
	p.T.Cleanup(func() {
		pr.Kill()
		if p.T.Failed() {
			p.T.Logf("%s: exit %d\n%s", strings.Join(words, " "), pr.Code, Tail(pr.Log.String(), 60))
		}
	})
	return pr
}

// Tail returns the last lines of a text.
func Tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Wait waits for the end and returns the exit status.
func (pr *Process) Wait() int {
	pr.T.Helper()
	select {
	case <-pr.Done:
	case <-time.After(Patience):
		_ = pr.Cmd.Process.Signal(syscall.SIGQUIT) // stacks into the log
		<-pr.Done
		require.FailNow(pr.T, "the process did not end", Tail(pr.Log.String(), 200))
	}
	return pr.Code
}

// Ok waits for the end, which must be without failure, and returns standard output.
func (pr *Process) Ok() string {
	pr.T.Helper()
	require.Zero(pr.T, pr.Wait(), Tail(pr.Log.String(), 60))
	return pr.Out.String()
}

// Kill ends the process by SIGKILL and waits for its end.
func (pr *Process) Kill() {
	_ = pr.Cmd.Process.Kill()
	<-pr.Done
}

// Terminate sends SIGTERM.
func (pr *Process) Terminate() { _ = pr.Cmd.Process.Signal(syscall.SIGTERM) }

// Ended reports whether the process is gone.
func (pr *Process) Ended() bool {
	select {
	case <-pr.Done:
		return true
	default:
		return false
	}
}

// Summary is what run --json prints.
type Summary struct {
	Read     int64 `json:"events_read"`
	Repeated int64 `json:"repeated"`
	Stale    int64 `json:"stale"`
	Noise    int64 `json:"noise"`
	Dead     int64 `json:"dead_letters"`
	Customer []struct {
		Customer  string `json:"customer"`
		Held      int64  `json:"held_back"`
		Sent      int64  `json:"sent"`
		Delivered int64  `json:"delivered"`
	} `json:"customers"`
}

// Delivered sums over the customers.
func (s Summary) Delivered() (n int64) {
	for _, c := range s.Customer {
		n += c.Delivered
	}
	return n
}

// Drain runs the pipeline until it is idle.
func (p Project) Drain() Summary {
	p.T.Helper()
	var s Summary
	require.NoError(p.T, json.Unmarshal([]byte(p.Start("run --until-idle --json").Ok()), &s))
	return s
}
