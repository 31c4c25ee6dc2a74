package pipeline

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/checks"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/postgres"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// Roles are the stages that a process runs.
type Roles struct{ Ingest, Decide, Deliver bool }

// AllRoles is what a process runs unless told otherwise.
var AllRoles = Roles{true, true, true}

// Options of a Pipeline.
type Options struct {
	Config *config.Config
	Roles  Roles
	// UntilIdle ends Run when the sources are drained and everything decided is
	// delivered; file sources are then read to their end instead of followed.
	UntilIdle bool
	// Activate lets an older configuration replace the active one: a roll-back.
	Activate bool
	Logger   *slog.Logger
	// Load, if given, reads the configuration again and checks it, for Reload.
	Load func() (*config.Config, error)
	// Commands, if given, runs commands that other processes send to the
	// operators' listener.
	Commands Executor
	// Page, if given together with Commands, makes the operators' page, when
	// ServeAdmin begins.
	Page func(*Pipeline) http.Handler
	// Registry gets the metrics. Each process uses one of its own.
	Registry *prometheus.Registry
}

// Pipeline is one process of Weir. Made by Open, run once, closed by Run.
type Pipeline struct {
	opt Options
	cfg *config.Config
	log *slog.Logger
	reg *prometheus.Registry
	now atomic.Pointer[settings] // what a reload replaces; nil until it is compiled
	// activation is held while the active configuration and now change together.
	activation sync.RWMutex
	reloading  sync.Mutex

	kafka transport.Config // of the cluster; none without brokers
	logs  logs             // inbox and changes
	store store.Operator
	gate  gate.Gate
	inbox atomic.Pointer[store.Inbox] // replaced when the topic is
	// decidedGeneration is the newest generation that has a watermark.
	decidedGeneration atomic.Uint32
	closers           []func() error // in the order of opening

	keys     *auth.Keyring  // of the API; nil without
	commands *commands      // those of other processes; nil without Options.Commands
	attempts *auth.Attempts // wrong tokens at the operators' listener; nil before ServeAdmin

	targets sinks.Targets // the clients that sinks share

	ingestMetrics  *ingest.Metrics
	eventMetrics   *events.Metrics
	decideMetrics  *decide.Metrics
	deliverMetrics *deliver.Metrics
	importMetrics  *imports.Metrics
	checkMetrics   *checks.Metrics
	gauges         *gauges
	noise          *sketch.Board   // nil unless the process runs decide
	tracer         *tracing.Tracer // nil unless the configuration wants traces

	health health
	parts  parts
	end    *ending
}

// openTimeout bounds connecting and creating topics and tables.
const openTimeout = time.Minute

// OpenStore opens the store of a configuration.
func OpenStore(ctx context.Context, c *config.Config, log *slog.Logger) (store.Operator, error) {
	if p := c.Store.Postgres; p != nil {
		return postgres.Open(ctx, postgres.Options{URL: p.URL.Reveal(), MaxConns: int32(p.MaxConnections), Logger: log})
	}
	// The folder may be the default one, which nobody was asked to make.
	if err := os.MkdirAll(filepath.Dir(c.Store.SQLite.Path), 0o700); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, sqlite.Options{Path: c.Store.SQLite.Path})
}

// writable asks access(2) whether this user may write.
const writable = 2

// OpenStoreToRead opens the store of a configuration as OpenStore does, or, where
// this user may only read a SQLite file or its folder, for reading alone.
func OpenStoreToRead(ctx context.Context, c *config.Config, log *slog.Logger) (store.Operator, error) {
	if file := c.Store.SQLite; file != nil {
		mayWrite := func(path string) bool { return syscall.Access(path, writable) == nil }
		if !mayWrite(file.Path) || !mayWrite(filepath.Dir(file.Path)) {
			return sqlite.Open(ctx, sqlite.Options{Path: file.Path, ReadOnly: true})
		}
	}
	return OpenStore(ctx, c, log)
}

func withinOpenTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, openTimeout, errors.New("opening took longer than "+openTimeout.String()))
}

// connect registers the metrics, and opens the cluster and the store, which the
// closers close.
func (p *Pipeline) connect(ctx context.Context) (err error) {
	p.eventMetrics = events.NewMetrics(p.reg)
	p.ingestMetrics, p.decideMetrics, p.deliverMetrics = ingest.NewMetrics(p.reg), decide.NewMetrics(p.reg), deliver.NewMetrics(p.reg)
	p.importMetrics = imports.NewMetrics(p.reg)
	p.checkMetrics = checks.NewMetrics(p.reg)
	p.gauges = newGauges(p.reg)
	if p.store, err = OpenStore(ctx, p.cfg, p.log); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	p.closers = append(p.closers, p.store.Close)
	if err := p.openLogs(); err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	return nil
}

// Open connects everything that the configuration names. What fails here is
// wrong set-up and is said plainly; on an error nothing stays open.
func Open(ctx context.Context, opt Options) (_ *Pipeline, err error) {
	p := &Pipeline{opt: opt, cfg: opt.Config, log: opt.Logger, reg: opt.Registry, end: newEnding(opt.Config.Shutdown.Timeout.D())}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	ctx, cancel := withinOpenTimeout(ctx)
	defer cancel()
	if err := p.connect(ctx); err != nil {
		return nil, err
	}
	if err := p.openKeys(); err != nil {
		return nil, err
	}
	if err := p.store.Migrate(ctx); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if p.gate, err = openGate(p.cfg); err != nil {
		return nil, fmt.Errorf("gate: %w", err)
	}
	p.gate = gate.Under(p.gate, p.generation)
	p.closers = append(p.closers, p.gate.Close)
	if err := p.openTracing(); err != nil {
		return nil, err
	}
	if err := p.openTopics(ctx); err != nil {
		return nil, fmt.Errorf("logs: %w", err)
	}
	if err := p.activate(ctx); err != nil {
		return nil, err
	}
	if p.opt.Commands != nil {
		p.commands = newCommands()
		// First to end: it works with everything else.
		p.closers = append(p.closers, p.commands.end)
	}
	return p, nil
}

// closeProducer gives the closer of a producer whose callers have ended.
func (p *Pipeline) closeProducer(producer *transport.Producer) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(p.end.closing(), p.closeTimeout())
		defer cancel()
		if err := producer.Close(ctx); err != nil {
			// Nothing is lost by it: whatever Kafka did not acknowledge was not
			// acknowledged to its origin either, and comes again.
			p.log.Warn("Kafka was away at the end: some records come again", "error", err)
		}
		return nil
	}
}

// maxRecord is the largest record of the internal topics, in bytes: the
// largest event, change or frame of changes, and what goes with it.
func (p *Pipeline) maxRecord() int {
	n := max(decide.MaxFrame, int(p.cfg.Limits.Change))
	for i := range p.cfg.Sources {
		n = max(n, int(p.cfg.Sources[i].MaxEvent))
	}
	return n + recordOverhead
}

// newProducer makes a producer of the internal topics. It does not linger: what
// comes while a request is under way makes up the next one anyway.
func (p *Pipeline) newProducer(codec transport.Compression) (*transport.Producer, error) {
	// Adding partitions to the inbox must not move entities.
	fixed := map[string]int{p.cfg.Kafka.Inbox.Topic: p.cfg.Kafka.Inbox.Partitions}
	return transport.NewProducer(p.kafka, transport.ProducerConfig{MaxRecordBytes: p.maxRecord(), Partitions: fixed, Compression: codec, Linger: -1})
}

// cluster turns the configuration of a cluster into a transport's.
func (p *Pipeline) cluster(c config.Cluster) (transport.Config, error) {
	t := transport.Config{Brokers: c.Brokers, ClientID: p.cfg.Kafka.ClientID, Logger: p.log}
	if c.SASL != nil {
		t.SASL = transport.SASL{Mechanism: c.SASL.Mechanism, User: c.SASL.Username, Password: c.SASL.Password.Reveal()}
	}
	var err error
	t.TLS, err = clientTLS(c.TLS)
	return t, err
}

// clientTLS gives the settings of a TLS client; nil for nil.
func clientTLS(c *config.TLS) (*tls.Config, error) {
	t, _, err := loadTLS(c)
	return t, err
}

// loadTLS gives the settings of a TLS client, and a text that no other settings
// have: it changes with the content of the files.
func loadTLS(c *config.TLS) (t *tls.Config, identity string, err error) {
	if c == nil {
		return nil, "none", nil
	}
	files := map[string][]byte{}
	for _, path := range []string{c.CA, c.Cert, c.Key} {
		if path == "" {
			continue
		}
		if files[path], err = os.ReadFile(path); err != nil {
			return nil, "", fmt.Errorf("tls: %w", err)
		}
	}
	t = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CA != "" {
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(files[c.CA]) {
			return nil, "", fmt.Errorf("tls: %s holds no certificate in PEM form", c.CA)
		}
	}
	if c.Cert != "" {
		pair, err := tls.X509KeyPair(files[c.Cert], files[c.Key])
		if err != nil {
			return nil, "", fmt.Errorf("tls: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, sinks.ClientKey("tls", files[c.CA], files[c.Cert], files[c.Key], c.ServerName), nil
}

func openGate(c *config.Config) (gate.Gate, error) {
	if v := c.Gate.Valkey; v != nil {
		t, err := clientTLS(v.TLS)
		if err != nil {
			return nil, err
		}
		return gate.NewValkey(gate.ValkeyOptions{
			Addresses: v.Address, Username: v.Username, Password: v.Password.Reveal(), TLS: t, DB: v.DB,
			Prefix: v.Prefix, TTL: c.Gate.TTL.D(), Timeout: v.Timeout.D(),
		})
	}
	return gate.NewMemory(gate.MemoryOptions{Entries: c.Gate.Memory.MaxEntries, TTL: c.Gate.TTL.D()})
}

// topicSpecs are the inbox and the changes log of a configuration. What inbox
// partition p decided stands in partition p of the log.
func (p *Pipeline) topicSpecs(c *config.Config) []transport.TopicSpec {
	k := c.Kafka
	topic := func(name string, replication int, retention time.Duration) transport.TopicSpec {
		return transport.TopicSpec{
			Name: name, Partitions: int32(k.Inbox.Partitions), Replication: int16(replication),
			Configs: map[string]string{
				"retention.ms":      strconv.FormatInt(retention.Milliseconds(), 10),
				"max.message.bytes": strconv.Itoa(p.maxRecord() + recordOverhead),
				"cleanup.policy":    "delete",
			},
		}
	}
	inbox := topic(k.Inbox.Topic, k.Inbox.Replication, k.Inbox.Retention.D())
	changes := topic(k.Changes.Topic, k.Changes.Replication, k.Changes.Retention.D())
	changes.Grow = true // a server may have made it by itself
	return []transport.TopicSpec{inbox, changes}
}

// openTopics creates the inbox and the changes log and finds the inbox's
// generation.
func (p *Pipeline) openTopics(ctx context.Context) error {
	k := p.cfg.Kafka
	if err := p.logs.Ensure(ctx, p.topicSpecs(p.Config())); err != nil {
		return err
	}
	if err := p.keepChanges(ctx); err != nil {
		return err
	}
	id, err := p.logs.TopicID(ctx, k.Inbox.Topic)
	if err != nil {
		return err
	}
	var newest uint16
	if _, err := p.store.KnownInbox(ctx, k.Inbox.Topic, id); errors.Is(err, store.ErrNotFound) {
		if err := p.sayReplaced(ctx); err != nil {
			return err
		}
		if newest, err = p.newestGeneration(ctx); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	found, err := p.store.ResolveInbox(ctx, k.Inbox.Topic, id, int32(k.Inbox.Partitions), newest+1)
	if err == nil {
		p.inbox.Store(&found)
	}
	return err
}

// generation is that of the inbox that events go to. A process that does not decide
// learns of a new one from the watermarks.
func (p *Pipeline) generation() uint16 {
	newest := uint16(p.decidedGeneration.Load())
	if inbox := p.inbox.Load(); inbox != nil {
		newest = max(newest, inbox.Generation)
	}
	return newest
}

// newestGeneration is the highest generation that the changes log knows of: a
// store that was lost or replaced must not give out versions that customers have
// seen already.
func (p *Pipeline) newestGeneration(ctx context.Context) (uint16, error) {
	last, err := p.logs.ReadLast(ctx, p.cfg.Kafka.Changes.Topic)
	if err != nil {
		return 0, err
	}
	var newest uint16
	for _, r := range last {
		if f, err := change.ParseFrameHeader(r.Value); err == nil {
			newest = max(newest, f.To.Generation())
		}
	}
	return newest, nil
}

// activate makes the configuration the active one and compiles it.
func (p *Pipeline) activate(ctx context.Context) error {
	numbers, err := p.store.Services(ctx, serviceNames(p.cfg))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	identity := p.cfg.Identity()
	revision, err := p.store.Activate(ctx, identity, p.opt.Activate)
	if errors.Is(err, store.ErrSuperseded) {
		return fmt.Errorf("this configuration was replaced by a later one; start with --activate to go back to it: %w", err)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	plan, err := CompilePlan(p.cfg, numbers, revision.Number)
	if err != nil {
		return err
	}
	p.now.Store(newSettings(p.cfg, plan, identity))
	return nil
}

// Close closes a pipeline that is not run. Run closes by itself.
func (p *Pipeline) Close() error { return p.close() }

// close closes what is open, the latest first.
func (p *Pipeline) close() error {
	var errs []error
	for i := len(p.closers) - 1; i >= 0; i-- {
		errs = append(errs, p.closers[i]())
	}
	p.closers = nil
	return errors.Join(errs...)
}
