package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kfake"
)

// ErrInUse is the error of a folder that another process has open.
var ErrInUse = errors.New("folder is in use")

// Options of a broker.
type Options struct {
	// Dir holds the data. It is created if needed. Required.
	Dir string
	// SyncWrites makes an acknowledgement wait for fsync.
	SyncWrites bool
	// Port to listen on, at 127.0.0.1. Defaults to 0: any that is free.
	Port int
	// Retention is for topics that set no retention.ms. Defaults to 7 days.
	Retention time.Duration
	// RetentionBytes is for topics that set no retention.bytes, per partition.
	// Defaults to -1: no limit by size.
	RetentionBytes int64
	// SegmentBytes is the size of a file, the unit in which disk is freed.
	// Defaults to 16 MiB.
	SegmentBytes int64
	// RetentionCheck is how often old segments are looked for. Defaults to one
	// minute.
	RetentionCheck time.Duration
	// Reserve is how many bytes of the disk are left free: below it no records
	// are taken. Defaults to 64 MiB; negative: none.
	Reserve int64
	// Logger gets the broker's warnings. Defaults to slog.Default().
	Logger *slog.Logger
}

// Broker is a running broker.
type Broker struct {
	cluster *kfake.Cluster
	dir     string
	reserve int64
	log     *slog.Logger
	addrs   []string
	lock    *flock.Flock
	stop    chan struct{}
	loop    sync.WaitGroup
	once    sync.Once
	err     error

	fullMu sync.Mutex
	full   bool // guarded by fullMu
}

// Start opens the folder and listens. The error is an ErrInUse, naming the
// process, when another one has the folder open. ctx is looked at once: the
// broker runs until Close.
func Start(ctx context.Context, o Options) (*Broker, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		return nil, errors.New("embedded kafka: no folder configured")
	}
	if o.Retention == 0 {
		o.Retention = 7 * 24 * time.Hour
	}
	if o.RetentionBytes == 0 {
		o.RetentionBytes = -1
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 16 << 20
	}
	if o.RetentionCheck == 0 {
		o.RetentionCheck = time.Minute
	}
	if o.Reserve == 0 {
		o.Reserve = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("embedded kafka: %w", err)
	}
	lock, err := acquire(o.Dir)
	if err != nil {
		return nil, err
	}
	opts := []kfake.Opt{
		kfake.Ports(o.Port),
		kfake.DataDir(filepath.Join(o.Dir, "log")),
		kfake.ClusterID("weir-embedded"),
		kfake.WithLogger(&brokerLog{o.Logger}),
		kfake.GroupMinSessionTimeout(time.Second),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.ms":    strconv.FormatInt(o.Retention.Milliseconds(), 10),
			"log.retention.bytes": strconv.FormatInt(o.RetentionBytes, 10),
			"log.segment.bytes":   strconv.FormatInt(o.SegmentBytes, 10),
		}),
	}
	if o.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("embedded kafka in %s: %w", o.Dir, err), lock.Unlock())
	}
	b := &Broker{
		cluster: cluster, dir: o.Dir, reserve: o.Reserve, log: o.Logger,
		addrs: cluster.ListenAddrs(), lock: lock, stop: make(chan struct{}),
	}
	b.keepReserve()
	b.loop.Add(1)
	go b.retain(o.RetentionCheck)
	return b, nil
}

// retain applies retention. kfake's own clock for it runs hourly and only when
// a topic sets a retention itself.
func (b *Broker) retain(every time.Duration) {
	defer b.loop.Done()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		b.cluster.ApplyRetention()
		b.cluster.Compact()
		select {
		case <-tick.C:
		case <-b.stop:
			return
		}
	}
}

// Addrs gives the host:port to connect to.
func (b *Broker) Addrs() []string { return b.addrs }

// Close ends the broker, writes what is not on disk and frees the folder. It
// may be called twice.
func (b *Broker) Close() error {
	b.once.Do(func() {
		close(b.stop)
		b.loop.Wait()
		b.cluster.Close()
		b.err = b.lock.Unlock()
	})
	return b.err
}

const (
	lockFile  = "lock"
	ownerFile = "owner" // beside the lock: its process, for the error message
)

func acquire(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockFile))
	got, err := lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("embedded kafka: lock %s: %w", dir, err)
	}
	owner := filepath.Join(dir, ownerFile)
	if !got {
		pid := "unknown"
		if b, err := os.ReadFile(owner); err == nil {
			pid = strings.TrimSpace(string(b))
		}
		return nil, fmt.Errorf("embedded kafka: %s: %w by process %s", dir, ErrInUse, pid)
	}
	if err := os.WriteFile(owner, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("embedded kafka: %w", err), lock.Unlock())
	}
	return lock, nil
}

// brokerLog passes the warnings of kfake on.
type brokerLog struct{ log *slog.Logger }

func (l *brokerLog) Logf(level kfake.LogLevel, format string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.log.Error("embedded kafka: " + fmt.Sprintf(format, args...))
	case kfake.LogLevelWarn:
		l.log.Warn("embedded kafka: " + fmt.Sprintf(format, args...))
	}
}
