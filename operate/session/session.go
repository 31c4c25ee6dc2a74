// Package session opens the state of the active configuration for operators' commands:
// store, logs, inbox and compiled plan, and the environment of package operate over them.
package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	// ErrNothingRan says that there is no state yet.
	ErrNothingRan = errors.New("nothing has run with this configuration yet")
	// ErrNotActive says that another configuration than this one is active.
	ErrNotActive = store.WithClass(errors.New("this is not the active configuration: use the one that runs, start this one, or let the process reload its customers (weir reload)"), store.Superseded)
	// ErrInUse says that another process has the logs of the SQLite file open.
	ErrInUse = embedded.ErrInUse
)

// openTimeout bounds connecting.
const openTimeout = time.Minute

// Session is the open state of the active configuration: of a command, or of a process
// that runs. It may be used concurrently.
type Session struct {
	Config *config.Config
	Store  assemble.Store
	Logs   assemble.Logs
	Inbox  store.Inbox  // the current generation
	Plan   *decide.Plan // under the active revision
	Sinks  *assemble.Sinks
	Logger *slog.Logger
	// Shared says that another process has the SQLite file open, and decides.
	Shared bool
}

// Open connects store and logs, finds the inbox and compiles the configuration, which must be the
// active one. It creates and activates nothing. Its errors wrap ErrNothingRan or
// ErrNotActive in these cases. Nothing stays open then.
func Open(ctx context.Context, c *config.Config, log *slog.Logger) (_ *Session, err error) {
	if file := c.Store.File; file != "" {
		if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) {
			return nil, ErrNothingRan
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, errors.New("opening took longer than "+openTimeout.String()))
	defer cancel()
	s := &Session{Config: c, Logger: log, Sinks: &assemble.Sinks{Config: c, Logger: log}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Store, err = assemble.OpenStore(ctx, c, log); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.Shared = true
	if err := s.Own(); errors.Is(err, ErrInUse) {
		s.Logs = assemble.ShareLogs(c, s.Store, log)
	} else if err != nil {
		return nil, err
	}
	if err := s.Store.CheckSchema(ctx); err != nil {
		return nil, fmt.Errorf("store: %w (%s)", err, remedy.Of("store", err))
	}
	return s, s.find(ctx)
}

// Own takes the logs, if they are shared. The error is ErrInUse as long as another process has
// them.
func (s *Session) Own() error {
	if !s.Shared {
		return nil
	}
	logs, err := assemble.OpenLogs(s.Config, s.Store, s.Logger)
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	s.Logs, s.Shared = logs, false
	return nil
}

// Close closes the state.
func (s *Session) Close() error {
	var errs []error
	if s.Logs != nil {
		ctx, cancel := context.WithTimeout(context.Background(), s.Config.Shutdown.Timeout.D())
		defer cancel()
		errs = append(errs, s.Logs.Close(ctx))
	}
	if s.Store != nil {
		errs = append(errs, s.Store.Close())
	}
	return errors.Join(errs...)
}

// find finds the inbox and compiles the configuration.
func (s *Session) find(ctx context.Context) error {
	topic := s.Config.Kafka.Inbox.Topic
	id, err := s.Logs.TopicID(ctx, topic)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return ErrNothingRan
	} else if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	s.Inbox, err = s.Store.KnownInbox(ctx, topic, id)
	if errors.Is(err, store.ErrNotFound) {
		return ErrNothingRan
	} else if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	active, err := s.Active(ctx)
	if err != nil {
		return err
	}
	numbers, err := s.Store.Services(ctx, s.Config.ServiceNames())
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.Plan, err = assemble.Plan(s.Config, numbers, active.Number)
	return err
}

// Active returns the active revision. The error is ErrNotActive when another configuration
// became active.
func (s *Session) Active(ctx context.Context) (store.Revision, error) {
	active, err := s.Store.Active(ctx)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return active, ErrNothingRan
	case err != nil:
		return active, fmt.Errorf("store: %w", err)
	case s.Plan == nil && !s.Config.DecidesLike(active.Fingerprint), s.Plan != nil && !bytes.HasPrefix(active.Fingerprint, s.Plan.Fingerprint):
		return active, fmt.Errorf("%s: %w", s.Config.File, ErrNotActive)
	}
	return active, nil
}

// Env returns the environment of operators' commands. The error is ErrNotActive when another
// configuration became active.
func (s *Session) Env(ctx context.Context) (*operate.Env, error) {
	active, err := s.Active(ctx)
	if err != nil {
		return nil, err
	}
	known, err := s.Store.KnownServices(ctx)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	kinds := assemble.SinkKinds(s.Config)
	plan := *s.Plan
	plan.Revision = active.Number
	return &operate.Env{
		Store: s.Store, Plan: &plan, Checks: assemble.CheckServices(s.Config, known), Inbox: s.Inbox, Append: s.Logs, Log: s.Logs,
		Shape: func(source string) (ingest.Extractor, error) {
			c := s.Config.Sources.Find(source)
			if c == nil {
				return ingest.Extractor{}, operate.Invalid("there is no source %s in the active configuration", source)
			}
			return assemble.ExtractorOf(s.Config, c)
		},
		IsLog:  func(service string) bool { return kinds[service] == sinks.Log },
		Target: s.target,
	}, nil
}

// target opens the target of a service for reading.
func (s *Session) target(ctx context.Context, service string) (*operate.Target, error) {
	services := s.Config.Services()
	i := slices.IndexFunc(services, func(s config.Service) bool { return s.Name == service })
	if i < 0 {
		return nil, operate.Invalid("there is no service %s in the active configuration", service)
	}
	target, forgets, err := s.Sinks.Target(ctx, services[i])
	if errors.Is(err, assemble.ErrUnreadable) {
		return nil, operate.Invalid("the target of %s %s", service, err)
	}
	if err != nil {
		return nil, err
	}
	return &operate.Target{Scannable: target, Forgets: forgets}, nil
}
