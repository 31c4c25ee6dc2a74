//go:build verify

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
)

const (
	// patience bounds the wait for everything to be well again. Drivers notice a
	// half-open connection by their own time limits, the longest a minute.
	patience = 5 * time.Minute
	// stopping is the default of shutdown.timeout, and a minute for a machine that
	// is busy: that the time is kept, TestStopWhileAServerIsSilent shows.
	stopping = 20*time.Second + time.Minute
	// entities are few, so that every one of them is in flight all the time.
	entities = 60
	// batch is the number of events of one step.
	batch = 8
	// pace is the least time between two steps.
	pace = 40 * time.Millisecond
)

// world is all that a test has running.
type world struct {
	t         *testing.T
	servers   map[string]*servers.Server
	nets      map[string]*harness.Proxy
	cluster   *harness.Cluster
	hook      *harness.Receiver
	project   harness.Project
	processes []*harness.Process // that are meant to run
	all       []*harness.Process
	load      load
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, servers: map[string]*servers.Server{}, nets: map[string]*harness.Proxy{}, hook: harness.NewReceiver(t)}
	start := func(name, kind string) *servers.Server {
		s := servers.StartOwn(t, kind)
		w.servers[name] = s
		return s
	}
	behind := func(name, address string) string {
		w.nets[name] = harness.NewProxy(t, "127.0.0.1:0", address)
		return w.nets[name].Address()
	}
	behindURL := func(name, address string) string {
		u, err := url.Parse(address)
		require.NoError(t, err)
		u.Host = behind(name, u.Host)
		return u.String()
	}
	store, target, shop := start(storeServer, "postgres"), start(targetServer, "postgres"), start(shopServer, "postgres")
	harness.Exec(t, shop.Address, "CREATE TABLE stock (id text PRIMARY KEY, n int, at timestamptz DEFAULT now()); INSERT INTO stock SELECT 'B-' || lpad(n::text, 3, '0'), 9 FROM generate_series(0, 59) n")
	valkey, click := start(valkeyServer, "valkey"), start(clickServer, "chdb")
	kafka, upstream, advertised := servers.StartOwnKafkaBehindProxy(t)
	w.servers[kafkaServer], w.nets[kafkaServer] = kafka, harness.NewProxy(t, advertised, upstream)

	c := (&harness.Cluster{
		T: t, Brokers: []string{kafka.Address}, Prefix: "chaos.", Store: store.Address, Target: target.Address,
		Clickhouse: click.Address + "/default", Shop: shop.Address,
	}).Connect()
	c.Topics(4, c.Prefix+"registry", c.Prefix+"lab", c.Prefix+"overlay", c.Prefix+"feed")
	w.cluster = c

	customer := behindURL(targetServer, c.Target)
	main := strings.Replace(harness.DistributedMain, "\nmerge:", harness.DistributedShop, 1)
	w.project = harness.NewProject(t, map[string]string{
		"weir.yaml":            fmt.Sprintf(main, behindURL(storeServer, c.Store), behind(valkeyServer, valkey.Address), "chaos:", advertised, c.Prefix, behindURL(shopServer, c.Shop)),
		"customers/acme.yaml":  fmt.Sprintf(harness.DistributedAcme, behindURL(clickServer, c.Clickhouse), behindURL(hookServer, w.hook.URL()), harness.WebhookSecret, customer),
		"customers/beta.yaml":  fmt.Sprintf(harness.DistributedBeta, customer, c.Prefix),
		"customers/gamma.yaml": fmt.Sprintf(harness.DistributedGamma, customer),
	})
	w.load = load{cluster: c, shop: shop.Address, random: rand.New(rand.NewPCG(seed, 1)), news: make(chan struct{}, 1)}
	t.Cleanup(w.keepLogs)
	return w
}

// run starts one process more.
func (w *world) run() *harness.Process {
	pr := w.project.Start("run")
	w.all = append(w.all, pr)
	return pr
}

// stop ends processes in their orderly way. One that does not end in its time
// leaves its stacks in its log.
func (w *world) stop(processes ...*harness.Process) {
	w.t.Helper()
	for _, pr := range processes {
		pr.Terminate()
	}
	late := time.After(stopping)
	for _, pr := range processes {
		select {
		case <-pr.Done:
		case <-late:
			_ = pr.Cmd.Process.Signal(syscall.SIGQUIT)
		}
		if pr.Wait() != 0 {
			require.False(w.t, wasRunning(pr), "a process failed while it stopped: %s", harness.Tail(pr.Log.String(), 20))
		}
	}
}

// wasRunning reports whether a process has started so far that it must recover by
// itself from any outage. Before, it fails at once when a server is unreachable.
func wasRunning(pr *harness.Process) bool {
	return strings.Contains(pr.Log.String(), "event=process.running")
}

// supervise restarts processes that failed to start, as a service manager does.
func (w *world) supervise() {
	w.t.Helper()
	for i, pr := range w.processes {
		if pr.Ended() {
			require.False(w.t, wasRunning(pr), "process %d ended by itself: %s", i, harness.Tail(pr.Log.String(), 20))
			w.processes[i] = w.run()
		}
	}
}

// keepLogs writes the whole logs of a test that failed.
func (w *world) keepLogs() {
	if !w.t.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "weir-chaos-") //nolint:usetesting // to be read after the test
	require.NoError(w.t, err)
	for i, pr := range w.all {
		require.NoError(w.t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("process-%d-pid-%d.log", i, pr.Cmd.Process.Pid)), []byte(pr.Log.String()), 0o644))
	}
	w.t.Log("the logs of all processes are in", dir)
}

// settle waits until all sinks agree with the model and all processes are ready.
func (w *world) settle() {
	w.t.Helper()
	start := time.Now()
	w.t.Logf("%s settling", start.Format(time.TimeOnly))
	w.eventually("all is well again", func() error {
		w.supervise()
		for i, pr := range w.processes {
			if !wasRunning(pr) {
				return fmt.Errorf("process %d is still starting", i)
			}
			if status, body := pr.Get("/readyz"); status != 200 {
				return fmt.Errorf("process %d is not ready: %s", i, body)
			}
		}
		return w.cluster.Checks(w.hook)
	})
	require.Empty(w.t, w.project.Letters(), "dead letters")
	w.t.Logf("well again after %v", time.Since(start).Round(10*time.Millisecond))
}

// eventually is harness.Eventually with more patience, for conditions that are
// dear to look at.
func (w *world) eventually(what string, f func() error) {
	w.t.Helper()
	harness.Within(w.t, patience, 300*time.Millisecond, what, f)
}

// load sends events without an end, in steps.
type load struct {
	cluster *harness.Cluster
	shop    string
	random  *rand.Rand
	serial  int

	mu   sync.Mutex
	step int // guarded by mu
	err  error
	news chan struct{} // capacity 1: a step was done
}

// start begins at step 0 and returns a function that stops it and returns its failure.
func (l *load) start(ctx context.Context) (stop func() error) {
	l.step, l.err = 0, nil
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			err := l.send(ctx)
			l.mu.Lock()
			l.step++
			l.err = err
			l.mu.Unlock()
			select {
			case l.news <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	})
	return func() error {
		close(end)
		running.Wait()
		return l.err
	}
}

// write commits a transaction of the shop. It is lost while the shop is away.
func (l *load) write(ctx context.Context) {
	var sql strings.Builder
	for range 1 + l.random.IntN(3) {
		id := fmt.Sprintf("B-%03d", l.random.IntN(entities))
		switch roll := l.random.IntN(100); {
		case roll == 0:
			sql.WriteString("TRUNCATE stock;")
		case roll < 15:
			fmt.Fprintf(&sql, "DELETE FROM stock WHERE id = '%s';", id)
		default:
			fmt.Fprintf(&sql, "INSERT INTO stock VALUES ('%s', %d) ON CONFLICT (id) DO UPDATE SET n = excluded.n, at = now();", id, l.random.IntN(4))
		}
	}
	conn, err := pgx.Connect(ctx, l.shop)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, _ = conn.Exec(ctx, sql.String()) // the table is what came of it
}

// send is one step.
func (l *load) send(ctx context.Context) error {
	l.write(ctx)
	records := harness.Bananas(l.random, l.cluster.Prefix, batch, entities, &l.serial)
	return l.cluster.TrySend(ctx, records...)
}

// reach waits for a step.
func (l *load) reach(t testing.TB, step int) {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		now, err := l.step, l.err
		l.mu.Unlock()
		require.NoError(t, err)
		if now >= step {
			return
		}
		select {
		case <-l.news:
		case <-timeout:
			require.FailNow(t, "the load stands still", "at step %d", now)
		}
	}
}

// members counts the members of each consumer group.
func (w *world) members() (map[string]int, error) {
	groups, err := kadm.NewClient(w.cluster.Kafka).DescribeGroups(w.t.Context())
	if err != nil {
		return nil, err
	}
	n := map[string]int{}
	for _, g := range groups {
		if g.Err != nil {
			return nil, g.Err
		}
		n[g.Group] = len(g.Members)
	}
	return n, nil
}
