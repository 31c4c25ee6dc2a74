package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/internal/transport/logtest"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// childPath makes the test binary a process that appends to logs of its own until it
// is killed.
const childPath = "WEIR_TEST_EMBEDDED_PATH"

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		fmt.Fprintln(os.Stderr, appendUntilKilled(path))
		os.Exit(1)
	}
	logtest.Main(m)
}

// world is a file with its logs.
type world struct {
	*embedded.Logs
	file *sqlite.Store
	path string
}

func open(t testing.TB, path string) world {
	t.Helper()
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.NoError(t, file.Migrate(t.Context()))
	logs, err := embedded.Open(file, path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, logs.Release()) })
	return world{logs, file, path}
}

func fresh(t testing.TB) world {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "state.db"))
}

func (w world) Make(ctx context.Context, topic string, partitions int32) error {
	return w.Ensure(ctx, topic, partitions)
}

func (w world) NewGroup(ctx context.Context, gc transport.GroupConfig) (logtest.Group, error) {
	return w.Logs.NewGroup(ctx, gc)
}

func TestLogs(t *testing.T) {
	logtest.Run(t, "", func(t *testing.T) logtest.Logs { return fresh(t) })
}

// The cases of Watermill's own suite for a file with one reader of a topic.
func TestWatermill(t *testing.T) {
	features := tests.Features{Persistent: true, GuaranteedOrder: true}
	run := func(name string, test func(t *testing.T, tctx tests.TestContext, c tests.PubSubConstructor)) {
		t.Run(name, func(t *testing.T) {
			w := fresh(t)
			s := &logtest.Watermill{Ensure: w.Ensure, Append: func(ctx context.Context, records []transport.Record) error {
				return errors.Join(w.Ensure(ctx, records[0].Topic, 8), w.Append(ctx, records))
			}, Join: func(ctx context.Context, gc transport.GroupConfig) (message.Subscriber, error) {
				return w.Logs.NewGroup(ctx, gc)
			}}
			test(t, tests.TestContext{TestID: tests.NewTestID(), Features: features}, func(*testing.T) (message.Publisher, message.Subscriber) { return s, s })
			require.NoError(t, s.Close())
		})
	}
	run("resend on error", tests.TestResendOnError)
	run("no ack", tests.TestNoAck)
	run("message context", tests.TestMessageCtx)
	run("subscription context", tests.TestSubscribeCtx)
}

func appendUntilKilled(path string) error {
	ctx := context.Background()
	file, err := sqlite.Open(ctx, sqlite.Options{Path: path})
	if err != nil {
		return err
	}
	if err := file.Migrate(ctx); err != nil {
		return err
	}
	logs, err := embedded.Open(file, path, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if err := logs.Ensure(ctx, "topic", 1); err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := logs.Append(ctx, []transport.Record{{Topic: "topic", Key: []byte("k"), Value: []byte(strconv.Itoa(i))}}); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

// I1: acknowledged records survive kill -9 during appends, and while the
// process lives no other process gets its logs.
func TestKilledInTheMiddleOfAppends(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childPath+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	acked := -1
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acked, err = strconv.Atoi(strings.TrimSpace(lines.Text()))
		require.NoError(t, err)
		if acked == 25 {
			file, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
			require.NoError(t, err)
			_, err = embedded.Open(file, path, slog.New(slog.DiscardHandler))
			require.ErrorIs(t, err, embedded.ErrInUse)
			require.ErrorContains(t, err, strconv.Itoa(child.Process.Pid))
			require.NoError(t, file.Close())
			require.NoError(t, child.Process.Kill())
		}
	}
	require.Error(t, child.Wait(), "it was killed")
	require.GreaterOrEqual(t, acked, 25)

	w := open(t, path)
	start, end, err := w.Offsets(t.Context(), "topic")
	require.NoError(t, err)
	require.Greater(t, end[0], int64(acked))
	next := 0
	require.NoError(t, w.Scan(t.Context(), "topic", start, end, func(r transport.Scanned) error {
		require.Equal(t, strconv.Itoa(next), string(r.Value))
		next++
		return nil
	}))
	require.EqualValues(t, end[0], next)
}

// Records that a command appends beside the process wake its readers, between records of its own.
func TestRecordsOfAnotherProcess(t *testing.T) {
	w := fresh(t)
	require.NoError(t, w.Make(t.Context(), "topic", 2))
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: w.path})
	require.NoError(t, err)
	defer file.Close()
	command := embedded.Share(file, w.path, slog.New(slog.DiscardHandler))
	g, err := w.Logs.NewGroup(t.Context(), transport.GroupConfig{
		ID: "group", Topic: "topic", SessionTimeout: time.Minute, HeartbeatInterval: time.Second, CloseTimeout: time.Second,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	messages, err := g.Subscriber().Subscribe(t.Context(), "topic")
	require.NoError(t, err)
	for at, by := range []*embedded.Logs{w.Logs, command, command, w.Logs, w.Logs, command} {
		value := strconv.Itoa(at)
		require.NoError(t, by.Append(t.Context(), []transport.Record{{Topic: "topic", Partition: 1, Pinned: true, Value: []byte(value)}}))
		m := <-messages
		f, _ := transport.FrameOf(m)
		require.Len(t, f.Records, 1)
		require.Equal(t, value, string(f.Records[0].Value))
		require.EqualValues(t, at, f.Records[0].Offset)
		m.Ack()
	}
	require.NoError(t, command.Release(), "it has no lock")
	_, err = embedded.Open(file, w.path, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, embedded.ErrInUse)
}

// A re-created file has another log, and one that was not has the same.
func TestIdentity(t *testing.T) {
	w := fresh(t)
	_, err := w.TopicID(t.Context(), "topic")
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.NoError(t, w.Make(t.Context(), "topic", 4))
	require.NoError(t, w.Make(t.Context(), "topic", 4), "it is there")
	require.ErrorIs(t, w.Make(t.Context(), "topic", 5), transport.ErrPartitionCount)
	id, err := w.TopicID(t.Context(), "topic")
	require.NoError(t, err)
	require.NoError(t, w.Release())
	again, err := open(t, w.path).TopicID(t.Context(), "topic")
	require.NoError(t, err)
	require.Equal(t, id, again)
	other := fresh(t)
	require.NoError(t, other.Make(t.Context(), "topic", 4))
	anew, err := other.TopicID(t.Context(), "topic")
	require.NoError(t, err)
	require.NotEqual(t, id, anew)
}

// Records behind a failed append of their sequence are not appended.
func TestAppendAsyncStopsAtAFailure(t *testing.T) {
	w := fresh(t)
	require.NoError(t, w.Make(t.Context(), "topic", 1))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	record := []transport.Record{{Topic: "topic", Value: []byte("x")}}
	var sequence transport.Sequence
	w.AppendAsync(ended, &sequence, record, note)
	w.AppendAsync(t.Context(), &sequence, record, note)
	w.AppendAsync(t.Context(), new(transport.Sequence), record, note)
	require.ErrorIs(t, errs[0], context.Canceled)
	require.ErrorIs(t, errs[1], transport.ErrBroken)
	require.NoError(t, errs[2])
	_, end, err := w.Offsets(t.Context(), "topic")
	require.NoError(t, err)
	require.EqualValues(t, 1, end[0])
}
