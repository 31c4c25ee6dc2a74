package ingest

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/sequencer"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tracing"
	"github.com/seed-86dfc502/weir/transport"
)

// Letters keeps events that cannot be taken in.
type Letters interface {
	AddLetters(ctx context.Context, letters []store.DeadLetter) error
}

// Options of a Stage. All fields are needed unless they say a default.
type Options struct {
	Shape   Shape
	Gate    gate.Gate
	Inbox   transport.Appender
	Topic   string // the inbox topic
	Letters Letters
	// MaxEvents bounds a batch. Defaults to 2000.
	MaxEvents int
	// MaxBytes bounds a batch's payloads. Defaults to 16 MiB.
	MaxBytes int
	// Limit, if given, ends what a stop lets finish: its events come again.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer makes spans of traced events. Defaults to none.
	Tracer *tracing.Tracer
}

// Stage is ingest for one source. Handle may be called from any goroutine,
// Run once.
type Stage struct {
	opt Options
	seq *sequencer.Sequencer[taken]
	log *slog.Logger
	m   *sourceMetrics
	// gateDown is owned by Run: the gate failed at the last batch.
	gateDown bool
}

// New makes a stage.
func New(opt Options) *Stage {
	if opt.MaxEvents <= 0 {
		opt.MaxEvents = 2000
	}
	if opt.MaxBytes <= 0 {
		opt.MaxBytes = 16 << 20
	}
	return &Stage{
		opt: opt, m: opt.Metrics.of(opt.Shape.Source),
		log: opt.Logger.With("stage", "ingest", "source", opt.Shape.Source),
		seq: sequencer.New[taken](sequencer.Config{MaxItems: opt.MaxEvents, MaxBytes: opt.MaxBytes, Limit: opt.Limit}),
	}
}

// Handle is the router's handler. It returns nil when the event is durable
// in the inbox, known to the gate, or a dead letter.
func (s *Stage) Handle(msg *message.Message) error {
	p, ok := transport.PositionOf(msg.Context())
	if !ok {
		return errors.New("ingest: a message without position")
	}
	span := s.opt.Tracer.Ingest(msg.Context(), s.opt.Shape.Source, msg.Metadata)
	t, ok := preparedOf(msg.Context())
	if !ok {
		t = s.opt.Shape.take(msg, p)
	}
	t.span = span
	if t.letter != nil && span != nil {
		t.letter.Headers = withTrace(t.letter.Headers, span.Trace())
	}
	err := s.seq.Submit(msg.Context(), p, t, len(msg.Payload))
	s.traced(&t, err)
	return err
}

// Run takes events in until ctx is cancelled; the batch that is under way
// then is finished if that needs no repetition.
func (s *Stage) Run(ctx context.Context) error {
	return s.seq.Run(ctx, func(work context.Context, runs []*sequencer.Run[taken]) {
		if err := s.handle(work, ctx, runs); err != nil {
			for _, r := range runs {
				r.Fail(err)
			}
		}
	}, 0, nil)
}

// Idle tells whether nothing waits and nothing is under way.
func (s *Stage) Idle() bool { return s.seq.Idle() }

// handle takes one batch in. work is for effects, stop ends repetitions.
func (s *Stage) handle(work, stop context.Context, runs []*sequencer.Run[taken]) error {
	var letters []store.DeadLetter
	var fresh []taken
	for _, r := range runs {
		for _, item := range r.Items {
			switch t := item.Value; {
			case t.letter != nil:
				letters = append(letters, *t.letter)
				t.became(OutcomeDead)
			case t.skipped:
				s.m.skipped.Inc()
				t.became(OutcomeSkipped)
			default:
				fresh = append(fresh, t)
			}
		}
	}
	if len(letters) > 0 {
		if err := s.patiently(stop, "store dead letters", func() error { return s.opt.Letters.AddLetters(work, letters) }); err != nil {
			return err
		}
		for _, l := range letters {
			s.m.dead(l.Code)
		}
	}
	crash.At(crash.IngestBatch, s.opt.Shape.Source)
	fresh = s.unseen(work, fresh)
	crash.At(crash.GateChecked, s.opt.Shape.Source)
	if len(fresh) == 0 {
		return nil
	}
	records := make([]transport.Record, len(fresh))
	marks := make([]gate.Entry, 0, len(fresh))
	for i, t := range fresh {
		key, head, value, err := inbox.Encode(t.record)
		if err != nil {
			return err
		}
		records[i] = transport.Record{
			Topic: s.opt.Topic, Key: key, Value: value,
			Headers: transport.WithTrace([]transport.Header{{Key: inbox.Header, Value: head}}, t.span.Trace()),
		}
		t.became(OutcomeTaken)
		if t.gate.EventID != "" {
			marks = append(marks, t.gate)
		}
	}
	if crash.Enabled && len(records) > 1 && crash.Due(crash.AppendHalf, s.opt.Shape.Source) {
		_ = s.opt.Inbox.Append(work, records[:len(records)/2])
		crash.Die()
	}
	if err := s.patiently(stop, "append to the inbox", func() error { return s.append(work, stop, records) }); err != nil {
		return err
	}
	crash.At(crash.Appended, s.opt.Shape.Source)
	s.m.taken.Add(float64(len(fresh)))
	if len(marks) > 0 {
		// A mark that is lost only costs work later on.
		s.gateAnswered(s.opt.Gate.Mark(work, marks))
	}
	crash.At(crash.Marked, s.opt.Shape.Source)
	return nil
}

// append appends to the inbox; an append that is under way at a stop may go on
// for a moment, then its outcome is unknown and its events come again.
func (s *Stage) append(work, stop context.Context, records []transport.Record) error {
	ctx, cancel := pause.Outlast(work, stop, stopGrace)
	defer cancel()
	return s.opt.Inbox.Append(ctx, records)
}

const stopGrace = 2 * time.Second

// unseen leaves out events that the gate knows. A gate that is away lets
// everything through.
func (s *Stage) unseen(ctx context.Context, events []taken) []taken {
	var ask []gate.Entry
	for _, t := range events {
		if t.gate.EventID != "" {
			ask = append(ask, t.gate)
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
	inBatch := map[string]gate.Hash{} // what the gate would hold if events came one by one
	for _, t := range events {
		if id := t.gate.EventID; id != "" {
			known := seen[next]
			next++
			if last, again := inBatch[id]; again {
				known = last == t.gate.Hash
			}
			inBatch[id] = t.gate.Hash
			if known {
				s.m.repeated.Inc()
				t.became(OutcomeRepeated)
				continue
			}
		}
		keep = append(keep, t)
	}
	return keep
}

func (s *Stage) gateAnswered(err error) {
	switch {
	case err != nil && !s.gateDown:
		s.log.Warn("the gate does not answer; events pass unchecked until it does", "error", err)
	case err == nil && s.gateDown:
		s.log.Info("the gate answers again")
	}
	s.gateDown = err != nil
}

// patiently repeats op until it works or stop ends.
func (s *Stage) patiently(stop context.Context, what string, op func() error) error {
	wait := 50 * time.Millisecond
	for failures := 0; ; failures++ {
		err := op()
		if err == nil {
			if failures > 1 {
				s.log.Info("going on")
			}
			return nil
		}
		if failures == 1 {
			s.log.Warn("halted: trying again until it works", "doing", what, "error", err)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-stop.Done():
			t.Stop()
			return err
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// Metrics of ingest; label values are bounded by the configuration.
type Metrics struct {
	ingested  *prometheus.CounterVec // source, outcome
	letters   *prometheus.CounterVec // source, code
	unchecked *prometheus.CounterVec // source
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
			Name: "weir_ingested_total", Help: "Events read by source and outcome: taken, repeated (known to the gate), dead, skipped (about no row).",
		}, []string{"source", "outcome"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_ingest_dead_letters_total", Help: "Events that could not be taken in, by reason.",
		}, []string{"source", "code"}),
		unchecked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_gate_unchecked_total", Help: "Events that passed because the gate did not answer.",
		}, []string{"source"}),
	}
	reg.MustRegister(m.ingested, m.letters, m.unchecked)
	return m
}

type sourceMetrics struct {
	taken, repeated, skipped, unchecked prometheus.Counter
	dead                                func(code string)
}

func (m *Metrics) of(source string) *sourceMetrics {
	dead := m.ingested.WithLabelValues(source, OutcomeDead)
	return &sourceMetrics{
		taken:     m.ingested.WithLabelValues(source, OutcomeTaken),
		repeated:  m.ingested.WithLabelValues(source, OutcomeRepeated),
		skipped:   m.ingested.WithLabelValues(source, OutcomeSkipped),
		unchecked: m.unchecked.WithLabelValues(source),
		dead: func(code string) {
			dead.Inc()
			m.letters.WithLabelValues(source, code).Inc()
		},
	}
}
