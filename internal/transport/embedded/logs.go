package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// ErrInUse is the error of a file whose logs another process has open.
var ErrInUse = errors.New("in use")

// ErrFull says that the disk has no room for more.
var ErrFull = sqlite.ErrFull

// lockSuffix names the file beside the database that is locked while its logs are
// open. It holds the number of the process.
const lockSuffix = ".pid"

// Logs are the topics of a file. All methods may be called concurrently.
type Logs struct {
	file *sqlite.Store
	path string
	log  *slog.Logger
	lock *flock.Flock // nil if they are shared

	stop      context.CancelFunc
	following sync.WaitGroup

	mu      sync.Mutex
	open    map[string]*sqlite.Log // guarded by mu
	failing error                  // guarded by mu; of the last append, nil if it is durable

	noting sync.Mutex // one note is written at a time
	noted  []byte     // guarded by noting; the last note
}

// Open takes the logs of a file, which is open as file at path. The error is an
// ErrInUse, naming the process, when another one has them. Close releases them,
// and leaves the file open.
func Open(file *sqlite.Store, path string, log *slog.Logger) (*Logs, error) {
	lock := flock.New(path+lockSuffix, flock.SetPermissions(0o600))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !got {
		pid := "unknown"
		if text, err := os.ReadFile(path + lockSuffix); err == nil && len(text) > 0 {
			pid = strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf("%s is %w by process %s", path, ErrInUse, pid)
	}
	if err := os.WriteFile(path+lockSuffix, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	l := Share(file, path, log)
	ctx, stop := context.WithCancel(context.Background())
	l.lock, l.stop = lock, stop
	l.following.Go(func() { l.follow(ctx) })
	return l, nil
}

// Share returns the logs of a file for a command that reads them and appends to the inbox
// beside the process that has them.
func Share(file *sqlite.Store, path string, log *slog.Logger) *Logs {
	return &Logs{file: file, path: path, log: log, open: map[string]*sqlite.Log{}}
}

// followPause is how often Logs look for records of commands.
const followPause = 100 * time.Millisecond

// follow wakes readers when a command has appended records, until ctx ends.
func (l *Logs) follow(ctx context.Context) {
	for seen := int64(0); wait.Sleep(ctx, followPause); {
		version, err := l.file.ForeignVersion(ctx)
		if err != nil || version == seen { // writers report an error
			continue
		}
		l.mu.Lock()
		open := slices.Collect(maps.Values(l.open))
		l.mu.Unlock()
		for _, log := range open {
			err = errors.Join(err, log.Refresh(ctx))
		}
		if err == nil {
			seen = version
		}
	}
}

// Release releases the logs. It may be called twice.
func (l *Logs) Release() error {
	if l.lock == nil {
		return nil
	}
	l.stop()
	l.following.Wait()
	return l.lock.Unlock()
}

// Ensure opens a topic, and creates it if it is missing. See sqlite.Store.OpenLog.
func (l *Logs) Ensure(ctx context.Context, topic string, partitions int32) error {
	opened, err := l.file.OpenLog(ctx, topic, partitions)
	if errors.Is(err, sqlite.ErrPartitions) {
		err = fmt.Errorf("%w: %w", transport.ErrPartitionCount, err)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[topic] == nil { // its readers wait at the topic that appends go to
		l.open[topic] = opened
	}
	return nil
}

// topic opens a topic that is there. The error is Kafka's own without one.
func (l *Logs) topic(ctx context.Context, name string) (*sqlite.Log, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if log := l.open[name]; log != nil {
		return log, nil
	}
	log, err := l.file.FindLog(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("topic %s: %w", name, kerr.UnknownTopicOrPartition)
	}
	if err != nil {
		return nil, err
	}
	l.open[name] = log
	return log, nil
}

// TopicID returns a topic's identity. A re-created file has topics with others.
func (l *Logs) TopicID(ctx context.Context, topic string) (string, error) {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return "", err
	}
	return log.ID(), nil
}

// Failing returns why the last append is not durable yet, or why the file took nothing of late,
// or nil when it does.
func (l *Logs) Failing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing != nil {
		return l.failing
	}
	return l.file.Full()
}

func (l *Logs) setFailing(err error) {
	l.mu.Lock()
	was := l.failing
	l.failing = err
	l.mu.Unlock()
	switch {
	case was == nil && err != nil:
		l.log.Warn("halted: cannot append to the log; trying again until it works", "event", "log.halted", "error", err)
	case was != nil && err == nil:
		l.log.Info("resumed: the log takes records again", "event", "log.resumed")
	}
}

var _ transport.Appender = (*Logs)(nil)

// Append implements transport.Appender. It retries a failed append until ctx ends. Then its
// outcome is unknown.
func (l *Logs) Append(ctx context.Context, records []transport.Record) error {
	for len(records) > 0 {
		topic := records[0].Topic
		n := slices.IndexFunc(records, func(r transport.Record) bool { return r.Topic != topic })
		if n < 0 {
			n = len(records)
		}
		if err := l.append(ctx, topic, records[:n]); err != nil {
			return fmt.Errorf("append to %s: %w", topic, err)
		}
		records = records[n:]
	}
	return nil
}

func (l *Logs) append(ctx context.Context, topic string, records []transport.Record) error {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return err
	}
	parts := map[int32][]*transport.Record{}
	for i := range records {
		r := &records[i]
		p := r.Partition
		if !r.Pinned {
			p = 0
			if r.Key != nil {
				p = transport.PartitionOf(r.Key, log.Partitions())
			}
		}
		parts[p] = append(parts[p], r)
	}
	var rows []sqlite.LogFrame
	for p, records := range parts {
		rows = append(rows, pack(records, p)...)
	}
	_, err = wait.Retry(context.Background(), ctx, nil, "append", func() error {
		err := log.Append(ctx, rows)
		if c := store.ClassOf(err); c == store.Poison || c == store.Fatal || err != nil && ctx.Err() != nil {
			return wait.Permanent(err)
		}
		l.setFailing(err)
		return err
	})
	return err
}

// AppendAsync appends like Append, and calls done before it returns. Records behind
// a failure of its sequence fail.
func (l *Logs) AppendAsync(ctx context.Context, sequence *transport.Sequence, records []transport.Record, done func(error)) {
	err := sequence.Broken()
	if err == nil {
		if err = l.Append(ctx, records); err != nil {
			sequence.Break(err)
		}
	}
	done(err)
}

// Close is for callers of AppendAsync: nothing is under way when that has returned.
func (l *Logs) Close(context.Context) error { return nil }
