package ingest

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/parallel"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Letters stores dead letters.
type Letters interface {
	AddLetters(ctx context.Context, letters []store.DeadLetter) error
}

// Options of a Stage. All fields are needed unless they say a default.
type Options struct {
	Extractor Extractor
	Gate      gate.Gate
	// InboxID returns the globally unique identity of the inbox. Marks belong to it: an event
	// that a lost inbox or another pipeline has ingested is no repetition.
	InboxID func() string
	Inbox   transport.Appender
	Topic   string // the inbox topic
	// Aside, if given, lets frames pass while some partitions of the inbox reject writes. Inbox
	// is a SequencedAppender then, and Partitions is how many partitions it has.
	Aside      *Aside
	Partitions int32
	Letters    Letters
	// Limit, if given, ends the grace of a shutdown: unfinished events are redelivered.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer makes spans of traced events. Defaults to none.
	Tracer *tracing.Tracer
}

// Stage is ingest for one source. Handle may be called from any goroutine.
type Stage struct {
	opt      Options
	log      *slog.Logger
	m        *sourceMetrics
	inFlight atomic.Int64 // frames
	gateDown atomic.Bool  // the gate failed when it was asked last
	gateMute atomic.Bool  // it refused the last marks
	noticed  sync.Map     // notices that were logged

	async SequencedAppender // nil if the inbox takes whole frames only
	mu    sync.Mutex
	lanes map[int32]*lane // guarded by mu; by partition of the source
}

// New makes a stage.
func New(opt Options) *Stage {
	if opt.Limit == nil {
		opt.Limit = context.Background()
	}
	s := &Stage{
		opt: opt, m: opt.Metrics.of(opt.Extractor.Source), lanes: map[int32]*lane{},
		log: opt.Logger.With("stage", "ingest", "source", opt.Extractor.Source),
	}
	if opt.Aside != nil {
		s.async, _ = opt.Inbox.(SequencedAppender)
	}
	return s
}

// Handle is the router's handler. It returns nil when every event of the
// message's frame is durable in the inbox, known to the gate, or a dead letter.
// An error means that the frame must be redelivered. The end of the message's
// context ends retries, not an effect that is under way.
func (s *Stage) Handle(msg *message.Message) error {
	f, ok := transport.FrameOf(msg)
	if !ok {
		return errors.New("ingest: a message without a frame")
	}
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	stop := msg.Context()
	if stop.Err() != nil {
		return context.Cause(stop)
	}
	l, err := s.enter(f)
	if err != nil {
		return err
	}
	var left []*group
	defer func() { s.leave(l, err, firstOf(f, left)) }()
	events := make([]extracted, len(f.Records))
	parallel.Do(len(events), func(i int) { events[i] = s.extract(stop, f, i); events[i].at = i })
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	defer context.AfterFunc(s.opt.Limit, cancel)()
	left, err = s.ingestFrame(work, stop, f, l, events)
	if s.opt.Tracer != nil {
		for i := range events {
			s.endSpan(&events[i], err)
		}
	}
	return err
}

// extract takes the event at i of a frame apart, unless that was done before. It
// is called concurrently.
func (s *Stage) extract(ctx context.Context, f *transport.Frame, i int) extracted {
	ev := &f.Records[i]
	var span *tracing.Span
	if s.opt.Tracer != nil {
		if ev.Context != nil {
			ctx = ev.Context
		}
		span = s.opt.Tracer.Ingest(ctx, s.opt.Extractor.Source, ev.Header)
	}
	x, ok := preparedOf(ev)
	if !ok {
		x = s.opt.Extractor.extract(f, i, span.Trace())
	}
	x.span = span
	if x.notice != (notice{}) {
		if _, before := s.noticed.LoadOrStore(x.notice.event, true); !before {
			s.log.Warn(x.notice.text, "event", x.notice.event)
		}
	}
	return x
}

// Idle reports whether no frame is in flight.
func (s *Stage) Idle() bool { return s.inFlight.Load() == 0 }

// ingestFrame ingests the events of one frame. work is for effects, stop ends
// repetitions. With an error it may return the rest of the frame.
func (s *Stage) ingestFrame(work, stop context.Context, f *transport.Frame, l *lane, events []extracted) (left []*group, err error) {
	var letters []store.DeadLetter
	fresh := make([]*extracted, 0, len(events))
	for i := range events {
		switch x := &events[i]; {
		case x.letter != nil:
			letters = append(letters, *x.letter)
			x.recordOutcome(OutcomeDead)
			if x.refused != nil {
				fresh = append(fresh, x)
			}
		case x.skipped:
			s.m.skipped.Inc()
			x.recordOutcome(OutcomeSkipped)
		default:
			fresh = append(fresh, x)
		}
	}
	if len(letters) > 0 {
		if err := s.retry(stop, "store dead letters", func() error { return s.opt.Letters.AddLetters(work, letters) }); err != nil {
			return nil, err
		}
		for _, l := range letters {
			s.m.dead(l.Code)
		}
	}
	crash.At(crash.IngestBatch, s.opt.Extractor.Source)
	fresh = s.filterSeen(work, fresh)
	crash.At(crash.GateChecked, s.opt.Extractor.Source)
	if len(fresh) == 0 {
		return nil, nil
	}
	records := make([]transport.Record, 0, len(fresh))
	of := make([]*extracted, 0, len(fresh)) // the event of each record
	for _, x := range fresh {
		for _, r := range x.records() {
			key, head, value, err := change.EncodeRecord(r)
			if err != nil {
				return nil, err
			}
			x.left++
			of = append(of, x)
			records = append(records, transport.Record{
				Topic: s.opt.Topic, Key: key, Value: value,
				Headers: transport.WithTrace([]transport.Header{{Key: change.InboxHeader, Value: head}}, x.span.Trace()),
			})
		}
		if x.letter == nil {
			x.recordOutcome(OutcomeTaken)
		}
	}
	if crash.Enabled && len(records) > 1 && crash.Due(crash.AppendHalf, s.opt.Extractor.Source) {
		_ = s.opt.Inbox.Append(work, records[:len(records)/2])
		crash.Die()
	}
	if s.async != nil {
		left, err = s.appendGroups(work, stop, f, l, s.groups(records, of), func(groups []*group, aside bool) {
			var done []*extracted
			for _, g := range groups {
				done = append(done, g.events...)
			}
			s.appended(work, done, aside)
		})
	} else if err = s.retry(stop, "append to the inbox", func() error { return s.append(work, stop, records) }); err == nil {
		s.appended(work, of, false)
	}
	if err != nil {
		return left, err
	}
	crash.At(crash.Marked, s.opt.Extractor.Source)
	return nil, nil
}

// appended counts events whose last record is in the inbox, and marks them at the gate. An
// event that was set aside gets no mark: a later event of its id may be marked already.
func (s *Stage) appended(work context.Context, of []*extracted, aside bool) {
	crash.At(crash.Appended, s.opt.Extractor.Source)
	var marks []gate.Entry
	taken := 0
	for _, x := range of {
		if x.left--; x.left > 0 || x.letter != nil {
			continue
		}
		taken++
		if x.gate.EventID != "" && !aside {
			marks = append(marks, x.gate)
		}
	}
	s.m.taken.Add(float64(taken))
	if len(marks) == 0 {
		return
	}
	// A mark that is lost only costs work later on.
	err := s.opt.Gate.Mark(work, marks)
	if err != nil {
		s.m.unmarked.Add(float64(len(marks)))
	}
	s.gateMarked(err)
}

// append appends to the inbox. No append begins after stop: the next owner may have
// appended newer events. One that is under way has a grace, then its outcome is unknown and
// its events are redelivered.
func (s *Stage) append(work, stop context.Context, records []transport.Record) error {
	if stop.Err() != nil {
		return context.Cause(stop)
	}
	ctx, cancel := wait.WithGrace(work, stop, stopGrace)
	defer cancel()
	return s.opt.Inbox.Append(ctx, records)
}

const stopGrace = 2 * time.Second

// filterSeen leaves out events that the gate knows. A gate that does not answer lets
// everything through. Marks are of the inbox as it is before the append: one that
// replaces it later may lack these events.
func (s *Stage) filterSeen(ctx context.Context, events []*extracted) []*extracted {
	var ask []gate.Entry
	source := s.opt.InboxID() + "/" + s.opt.Extractor.Source
	for _, x := range events {
		if x.gate.EventID != "" {
			x.gate.Source = source
			ask = append(ask, x.gate)
		}
	}
	if len(ask) == 0 {
		return events
	}
	seen, err := s.opt.Gate.Seen(ctx, ask)
	s.gateAnswered(err)
	if err != nil {
		s.m.unchecked.Add(float64(len(ask)))
		return events
	}
	keep := events[:0:0]
	next := 0
	inFrame := map[string]gate.Hash{} // the gate's marks as if events came one at a time
	for _, x := range events {
		if id := x.gate.EventID; id != "" {
			known := seen[next]
			next++
			if last, again := inFrame[id]; again {
				known = last == x.gate.Hash
			}
			inFrame[id] = x.gate.Hash
			if known {
				s.m.repeated.Inc()
				x.recordOutcome(OutcomeRepeated)
				continue
			}
		}
		keep = append(keep, x)
	}
	return keep
}

func (s *Stage) gateAnswered(err error) {
	switch down := err != nil; {
	case s.gateDown.Swap(down) == down:
	case down:
		s.log.Warn("gate is unreachable; events pass unchecked", "event", "gate.unreachable", "error", err)
	default:
		s.log.Info("gate answers again", "event", "gate.reachable")
	}
}

// gateMarked is separate from gateAnswered: a gate may answer and reject writes.
func (s *Stage) gateMarked(err error) {
	switch mute := err != nil; {
	case s.gateDown.Load(), s.gateMute.Swap(mute) == mute: // logged before
	case mute:
		s.log.Warn("gate rejects writes; duplicates of these events will not be filtered", "event", "gate.read_only", "error", err)
	default:
		s.log.Info("gate accepts writes again", "event", "gate.writable")
	}
}

// retry repeats op until it works or stop ends.
func (s *Stage) retry(stop context.Context, what string, op func() error) error {
	_, err := wait.Retry(context.Background(), stop, s.log, what, op)
	return err
}

// Metrics of ingest; label values are bounded by the configuration.
type Metrics struct {
	ingested  *prometheus.CounterVec // source, outcome
	letters   *prometheus.CounterVec // source, code
	unchecked *prometheus.CounterVec // source
	unmarked  *prometheus.CounterVec // source
}

// Outcomes, the values of label "outcome".
const (
	OutcomeTaken    = "taken"    // durable in the inbox
	OutcomeRepeated = "repeated" // known to the gate
	OutcomeDead     = "dead"
	OutcomeSkipped  = "skipped" // about no entity, see Format
)

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		ingested: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_ingest_events_total", Help: "Events read by source and outcome: taken, repeated (known to the gate), dead, skipped (about no row).",
		}, []string{"source", "outcome"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_ingest_dead_letters_total", Help: "Events that could not be ingested, by reason.",
		}, []string{"source", "code"}),
		unchecked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gate_unchecked_total", Help: "Events that passed because the gate did not answer.",
		}, []string{"source"}),
		unmarked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gate_unmarked_total", Help: "Ingested events that the gate did not record: their duplicates pass it.",
		}, []string{"source"}),
	}
	reg.MustRegister(m.ingested, m.letters, m.unchecked, m.unmarked)
	return m
}

type sourceMetrics struct {
	taken, repeated, skipped, unchecked, unmarked prometheus.Counter
	dead                                          func(code string)
}

func (m *Metrics) of(source string) *sourceMetrics {
	dead := m.ingested.WithLabelValues(source, OutcomeDead)
	return &sourceMetrics{
		taken:     m.ingested.WithLabelValues(source, OutcomeTaken),
		repeated:  m.ingested.WithLabelValues(source, OutcomeRepeated),
		skipped:   m.ingested.WithLabelValues(source, OutcomeSkipped),
		unchecked: m.unchecked.WithLabelValues(source),
		unmarked:  m.unmarked.WithLabelValues(source),
		dead: func(code string) {
			dead.Inc()
			m.letters.WithLabelValues(source, code).Inc()
		},
	}
}
