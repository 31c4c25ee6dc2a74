package embedded_test

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/transport"
	"github.com/seed-86dfc502/weir/transport/embedded"
)

// childDir makes the test binary a process that writes to a broker of its own
// until it is killed.
const childDir = "WEIR_TEST_EMBEDDED_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := write(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// write appends numbers and prints each after its acknowledgement.
func write(dir string) error {
	ctx := context.Background()
	b, err := embedded.Start(ctx, embedded.Options{Dir: dir, SyncWrites: true})
	if err != nil {
		return err
	}
	cfg := transport.Config{Brokers: b.Addrs(), Logger: quietLog()}
	a, err := transport.NewAdmin(cfg)
	if err != nil {
		return err
	}
	if err := a.EnsureTopics(ctx, []transport.TopicSpec{{Name: "topic", Partitions: 1}}); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...))
	if err != nil {
		return err
	}
	var commit kadm.Offsets
	commit.AddOffset("topic", 0, 7, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, "group", commit); err != nil {
		return err
	}
	id, err := a.TopicID(ctx, "topic")
	if err != nil {
		return err
	}
	fmt.Println(id)
	p, err := transport.NewProducer(cfg, transport.ProducerConfig{Linger: -1})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		if err := p.Append(ctx, []transport.Record{{Topic: "topic", Value: []byte(strconv.Itoa(i))}}); err != nil {
			return err
		}
		fmt.Println(i)
	}
}

func start(t *testing.T, o embedded.Options) (*embedded.Broker, transport.Config, *transport.Admin) {
	t.Helper()
	o.Logger = quietLog()
	b, err := embedded.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	cfg := transport.Config{Brokers: b.Addrs(), Logger: quietLog()}
	a, err := transport.NewAdmin(cfg)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return b, cfg, a
}

func TestKilledInTheMiddleOfWrites(t *testing.T) {
	dir := t.TempDir()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	t.Cleanup(func() { _ = child.Process.Kill() }) // when the test ends early
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan())
	id := lines.Text()
	acked := -1
	for acked < 50 && lines.Scan() {
		acked, err = strconv.Atoi(lines.Text())
		require.NoError(t, err)
	}
	_, err = embedded.Start(t.Context(), embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.ErrorContains(t, err, strconv.Itoa(child.Process.Pid))

	require.NoError(t, child.Process.Kill())
	for lines.Scan() { // what it had printed before
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			acked = n
		}
	}
	require.Error(t, child.Wait())

	_, cfg, a := start(t, embedded.Options{Dir: dir})
	now, err := a.TopicID(t.Context(), "topic")
	require.NoError(t, err)
	require.Equal(t, id, now)
	end, err := a.EndOffsets(t.Context(), "topic")
	require.NoError(t, err)
	require.Greater(t, end[0], int64(acked))
	last, err := a.ReadLast(t.Context(), "topic")
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(end[0]-1, 10), string(last[0].Value))
	lag, err := a.Lag(t.Context(), "group", "topic")
	require.NoError(t, err)
	require.EqualValues(t, 7, lag[0].Committed)

	p, err := transport.NewProducer(cfg, transport.ProducerConfig{})
	require.NoError(t, err)
	require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: "topic", Value: []byte("more")}}))
	require.NoError(t, p.Close(t.Context()))
}

func TestOneProcessPerFolder(t *testing.T) {
	dir := t.TempDir()
	b, _, _ := start(t, embedded.Options{Dir: dir})
	_, err := embedded.Start(t.Context(), embedded.Options{Dir: dir})
	require.ErrorIs(t, err, embedded.ErrInUse)
	require.ErrorContains(t, err, strconv.Itoa(os.Getpid()))
	require.NoError(t, b.Close())
	start(t, embedded.Options{Dir: dir})
}

// Package limits shows on a small disk that producers go on afterwards.
func TestReserveIsNotTouched(t *testing.T) {
	b, cfg, a := start(t, embedded.Options{Dir: t.TempDir(), Reserve: 1 << 60})
	require.ErrorIs(t, b.Full(), embedded.ErrFull)
	require.NoError(t, a.EnsureTopics(t.Context(), []transport.TopicSpec{{Name: "topic", Partitions: 1}}))
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addrs()...), kgo.RecordRetries(1))
	require.NoError(t, err)
	defer client.Close()
	err = client.ProduceSync(t.Context(), &kgo.Record{Topic: "topic", Value: []byte("x")}).FirstErr()
	require.ErrorIs(t, err, kerr.KafkaStorageError)
	end, err := a.EndOffsets(t.Context(), "topic")
	require.NoError(t, err)
	require.Zero(t, end[0])

	p, err := transport.NewProducer(cfg, transport.ProducerConfig{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Append(ctx, []transport.Record{{Topic: "topic", Value: []byte("x")}}), context.DeadlineExceeded, "a producer waits")
	require.Error(t, p.Close(ctx))

	free, _, _ := start(t, embedded.Options{Dir: t.TempDir(), Reserve: -1})
	require.NoError(t, free.Full())
}

func TestRetentionBoundsTheDisk(t *testing.T) {
	dir := t.TempDir()
	_, cfg, a := start(t, embedded.Options{Dir: dir, RetentionBytes: 200_000, SegmentBytes: 100_000, RetentionCheck: 20 * time.Millisecond})
	require.NoError(t, a.EnsureTopics(t.Context(), []transport.TopicSpec{{Name: "topic", Partitions: 1}}))
	p, err := transport.NewProducer(cfg, transport.ProducerConfig{Compression: transport.NoCompression, Linger: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close(context.Background())) }()
	for range 200 {
		require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: "topic", Value: make([]byte, 20_000)}}))
	}
	require.Eventually(t, func() bool {
		var size int64
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil //nolint:nilerr // files go while we walk
			}
			if info, err := d.Info(); err == nil {
				size += info.Size()
			}
			return nil
		})
		require.NoError(t, err)
		start, end, err := a.Offsets(t.Context(), "topic")
		require.NoError(t, err)
		require.EqualValues(t, 200, end[0])
		return size < 500_000 && start[0] > 180
	}, time.Minute, 20*time.Millisecond)
}
