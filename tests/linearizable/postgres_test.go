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

// start starts a process.
func (w *world) start(ctx context.Context, s settings) *child {
	w.t.Helper()
	return launch(ctx, w.t, workerVariable, s, func(e entry) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for len(w.logs) <= s.Process {
			w.logs = append(w.logs, nil)
		}
		w.logs[s.Process] = append(w.logs[s.Process], e)
		w.line(s.Process, e)
	})
}

// launch starts this binary as a process with its settings in a variable, and
// hands over the entries of its log.
func launch[S, E any](ctx context.Context, t *testing.T, variable string, s S, each func(E)) *child {
	t.Helper()
	text, err := json.Marshal(s)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), variable+"="+string(text))
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	c := &child{command: command, read: make(chan error, 1)}
	go func() { c.read <- follow(out, each) }()
	return c
}

// follow reads a process's log to its end.
func follow[E any](out io.Reader, each func(E)) error {
	decoder := gob.NewDecoder(bufio.NewReader(out))
	for {
		var e E
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(e)
	}
}

// wait returns the error of a process that ended by itself.
func (c *child) wait() error {
	return errors.Join(<-c.read, c.command.Wait())
}
