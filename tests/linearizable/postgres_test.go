package linearizable

import (
	"bufio"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// patience bounds a run that hangs; it says nothing about speed.
const patience = 3 * time.Minute

// world is fresh tables and the processes over them.
type world struct {
	t     *testing.T
	store store.Store
	base  settings
	inbox [][]input

	mu   sync.Mutex
	logs [][]entry
	line func(process int, e entry) // called for every entry, under mu
}

func newWorld(t *testing.T, base settings) *world {
	t.Helper()
	url := servers.Postgres(t)
	s, err := postgres.Open(t.Context(), postgres.Options{URL: url})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	base.URL = url
	w := &world{t: t, store: s, line: func(int, entry) {}}
	w.base, w.inbox = prepare(t, s, base)
	w.base.Clock = filepath.Join(t.TempDir(), "clock")
	return w
}

// prepare makes the tables and completes the settings.
func prepare(t *testing.T, s store.Store, base settings) (settings, [][]input) {
	t.Helper()
	require.NoError(t, s.Migrate(t.Context()))
	r, err := s.Activate(t.Context(), []byte("fingerprint"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	numbers, err := s.Services(t.Context(), []string{service})
	require.NoError(t, err)
	base.Revision, base.Service = r.Number, numbers[service]
	inbox, err := topic(base.Seed, base.Records)
	require.NoError(t, err)
	return base, inbox
}

// child is one process.
type child struct {
	command *exec.Cmd
	read    chan error // when its log has ended
}

// start starts this binary as a process with its settings in a variable, and collects the entries of its log.
func (w *world) start(ctx context.Context, s settings) *child {
	w.t.Helper()
	text, err := json.Marshal(s)
	require.NoError(w.t, err)
	self, err := os.Executable()
	require.NoError(w.t, err)
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), workerVariable+"="+string(text))
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(w.t, err)
	require.NoError(w.t, command.Start())
	c := &child{command: command, read: make(chan error, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.logs) <= s.Process {
		w.logs = append(w.logs, nil)
	}
	go func() { c.read <- w.follow(out, s.Process) }()
	return c
}

// follow reads a process's log to its end.
func (w *world) follow(out io.Reader, process int) error {
	decoder := gob.NewDecoder(bufio.NewReader(out))
	for {
		var e entry
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		w.mu.Lock()
		w.logs[process] = append(w.logs[process], e)
		w.line(process, e)
		w.mu.Unlock()
	}
}

// wait returns the error of a process that ended by itself.
func (c *child) wait() error {
	return errors.Join(<-c.read, c.command.Wait())
}
