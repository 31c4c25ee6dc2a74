package history

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// Kept is how far a history reaches back.
	Kept = 24 * time.Hour
	// recent and recentStep say the same of the finer one, of this process.
	recent     = 15 * time.Minute
	recentStep = 15 * time.Second

	samplePeriod = 5 * time.Second
	savePeriod   = time.Minute
	reloadPeriod = 10 * time.Minute // additions of other processes to past hours
	saveTimeout  = 10 * time.Second
	lastSave     = 2 * time.Second // at the end of the process, which is not to wait for it
)

// Kind is the kind of the reports that hold hours. Their names are the hours.
const Kind = "history"

// hourName is the name of an hour's report.
const hourName = "2006-01-02T15"

// Options of a Recorder. All fields are needed unless they say otherwise.
type Options struct {
	Registry prometheus.Gatherer
	// Store keeps the history; nil keeps it in memory.
	Store store.Reports
	// Process returns the state of this process for the list of processes. With nil it is not in
	// the list. It needs Store.
	Process func() operate.Process
	Logger  *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Recorder is the history of a deployment, as one process sees it. Safe for
// concurrent use.
type Recorder struct {
	opt Options

	// Of Run alone: the process as it was announced last, the count of decided events, and the
	// time of its last increase.
	announced operate.Process
	decided   float64
	decidedAt time.Time

	mu      sync.Mutex
	looks   []*snapshot.Snapshot       // the recent ones, oldest first; guarded by mu
	last    *snapshot.Snapshot         // the snapshot added to the history last; guarded by mu
	saved   map[int64]*chunk           // by hour since 1970, as the store has them; guarded by mu
	unsaved map[int64]*chunk           // additions of this process; guarded by mu
	saving  map[int64]*chunk           // the part of unsaved that is being stored; guarded by mu
	fine    map[int64]map[string]Point // by step of recentStep since 1970; guarded by mu
}

// New makes an empty recorder.
func New(o Options) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Recorder{opt: o, saved: map[int64]*chunk{}, unsaved: map[int64]*chunk{}, fine: map[int64]map[string]Point{}}
}

// Run records until ctx ends, and stores the rest then.
func (r *Recorder) Run(ctx context.Context) {
	r.load(ctx)
	sample := time.NewTicker(samplePeriod)
	defer sample.Stop()
	save, reload := r.opt.Now(), r.opt.Now()
	for ctx.Err() == nil {
		if err := r.Sample(); err != nil {
			r.opt.Logger.Debug("metrics cannot be read", "event", "history.sample_failed", "error", err)
		}
		r.announce(ctx, false)
		if now := r.opt.Now(); now.Sub(save) >= savePeriod {
			save = now
			r.save(ctx)
			if now.Sub(reload) >= reloadPeriod {
				reload = now
				r.load(ctx)
			}
		}
		select {
		case <-sample.C:
		case <-ctx.Done():
		}
	}
	last, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, lastSave)
	defer cancel()
	if err := r.Sample(); err != nil {
		r.opt.Logger.Debug("metrics cannot be read", "event", "history.sample_failed", "error", err)
	}
	r.announce(last, true)
	r.save(last)
}

// Rates are taken over rateSpan, or the part of it since the start.
const (
	rateSpan  = 10 * time.Second
	shortest  = time.Second
	keepLooks = 30 * time.Second
)

// Look returns the current snapshot and an earlier one to take rates against: the latest that is
// at least 10 seconds old, else the oldest. Both are nil before the first snapshot.
func (r *Recorder) Look() (now, before *snapshot.Snapshot, err error) {
	if now, err = snapshot.Take(r.opt.Registry, r.opt.Now()); err != nil {
		return nil, nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.looks) > 0 && now.At.Sub(r.looks[0].At) > keepLooks {
		r.looks = r.looks[1:]
	}
	for _, l := range r.looks {
		age := now.At.Sub(l.At)
		if age < shortest || before != nil && age < rateSpan {
			break
		}
		before = l
	}
	if len(r.looks) == 0 || now.At.Sub(r.looks[len(r.looks)-1].At) >= shortest {
		r.looks = append(r.looks, now)
	}
	return now, before, nil
}

// Sample adds the increase since the last sample to the current minute. The first sample adds
// everything since the process started.
func (r *Recorder) Sample() error {
	now, _, err := r.Look()
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last
	if before == nil {
		before = &snapshot.Snapshot{}
	}
	r.last = now
	second := now.At.Unix()
	hour, minute, step := second/3600, int(second/60%60), second/int64(recentStep.Seconds())
	if r.unsaved[hour] == nil {
		r.unsaved[hour] = newChunk()
	}
	if r.fine[step] == nil {
		r.fine[step] = map[string]Point{}
	}
	note := func(series string, p Point) {
		r.unsaved[hour].add(series, minute, p)
		if _, known := r.fine[step][series]; p != (Point{}) && (known || len(r.fine[step]) < MaxSeries) {
			sum := r.fine[step][series]
			sum.add(p)
			r.fine[step][series] = sum
		}
	}
	var services, sources Point
	all := map[string]Point{}
	for name, s := range now.Services {
		p := servicePoint(s, before.Service(name))
		services.add(p)
		all[ServiceSeries(name)] = p
	}
	services.Waiting = int64(now.Pending)
	for name, s := range now.Sources {
		p := sourcePoint(s, before.Source(name))
		sources.add(p)
		if name != "" {
			all[SourceSeries(name)] = p
		}
	}
	sources.Waiting = int64(now.SourceLag)
	note(running, Point{In: 1}) // first: beyond the bound the sums are still there
	note(AllServices, services)
	note(AllSources, sources)
	for series, p := range all {
		note(series, p)
	}
	r.forget(second)
	return nil
}

// The series of sums.
const (
	AllServices = "all services"
	AllSources  = "all sources"
	running     = "running" // counts samples, of any process
)

// ServiceSeries is the name of a service's series.
func ServiceSeries(service string) string { return "service " + service }

// SourceSeries is the name of a source's series.
func SourceSeries(source string) string { return "source " + source }

// grew is the increase of a counter, 0 after a restart.
func grew(now, before float64) int64 { return int64(max(0, now-before)) }

func servicePoint(now, before *snapshot.Service) Point {
	return Point{
		In: grew(now.Decisions[decide.DecisionSent], before.Decisions[decide.DecisionSent]), Held: grew(now.Decisions[decide.DecisionHeldBack], before.Decisions[decide.DecisionHeldBack]),
		Out: grew(now.Delivered["delivered"], before.Delivered["delivered"]), Failed: grew(now.Failures, before.Failures),
		AgeMillis: grew(1000*now.AgeSum, 1000*before.AgeSum), Aged: grew(now.AgeCount, before.AgeCount), Waiting: int64(now.Pending),
	}
}

func sourcePoint(now, before *snapshot.Source) Point {
	return Point{
		In: grew(now.Taken, before.Taken), Held: grew(now.Repeated+now.Noise, before.Repeated+before.Noise),
		Failed: grew(now.Dead, before.Dead), Waiting: int64(now.Lag),
	}
}

// forget drops expired hours. The caller holds r.mu.
func (r *Recorder) forget(second int64) {
	oldest := (second - int64(Kept.Seconds())) / 3600
	for _, hours := range []map[int64]*chunk{r.saved, r.unsaved} {
		for hour := range hours {
			if hour < oldest {
				delete(hours, hour)
			}
		}
	}
	for step := range r.fine {
		if step < (second-int64(recent.Seconds()))/int64(recentStep.Seconds()) {
			delete(r.fine, step)
		}
	}
}

// save adds the increase to the reports of its hours. A write that certainly failed is retried.
// After one of unknown outcome the increase may be counted twice.
func (r *Recorder) save(ctx context.Context) {
	if r.opt.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	r.mu.Lock()
	mine := r.unsaved
	r.saving, r.unsaved = mine, map[int64]*chunk{}
	r.mu.Unlock()
	for hour, added := range mine {
		if added.empty() {
			continue
		}
		var merged *chunk
		err := r.opt.Store.UpdateReport(ctx, Kind, time.Unix(hour*3600, 0).UTC().Format(hourName), func(body []byte) ([]byte, error) {
			var err error
			if merged, err = decode(body); err != nil {
				merged = newChunk() // of another build
			}
			merged.addAll(added)
			return merged.encode()
		})
		r.mu.Lock()
		delete(r.saving, hour)
		switch {
		case err == nil:
			r.saved[hour] = merged
		case store.ClassOf(err) == store.Retry:
			if r.unsaved[hour] == nil {
				r.unsaved[hour] = newChunk()
			}
			r.unsaved[hour].addAll(added)
		default:
			if r.saved[hour] == nil {
				r.saved[hour] = newChunk()
			}
			r.saved[hour].addAll(added)
		}
		r.mu.Unlock()
		if err != nil {
			r.opt.Logger.Debug("a minute of history was not stored", "event", "history.save_failed", "error", err)
		}
	}
	if _, err := r.opt.Store.PruneReports(ctx, Kind, r.opt.Now().Add(-Kept-time.Hour)); err != nil {
		r.opt.Logger.Debug("expired hours were not deleted", "event", "history.prune_failed", "error", err)
	}
}

// load reads the stored hours.
func (r *Recorder) load(ctx context.Context) {
	if r.opt.Store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	reports, err := r.opt.Store.ListReports(ctx, Kind)
	if err != nil {
		r.opt.Logger.Debug("history cannot be read", "event", "history.load_failed", "error", err)
		return
	}
	read := map[int64]*chunk{}
	for _, report := range reports {
		at, err := time.Parse(hourName, report.Name)
		if err != nil {
			continue
		}
		if c, err := decode(report.Body); err == nil {
			read[at.Unix()/3600] = c
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved = read
	r.forget(r.opt.Now().Unix())
}

// Step is a part of a range, beginning at At.
type Step struct {
	At    time.Time
	Known bool // a process was recording
	Point
}

// Range is the span of a shown history and its steps.
type Range struct {
	Name       string // as in an address: 15m, 1h, …
	Words      string
	Span, Step time.Duration
}

// Ranges are the ranges to choose from. The first is of this process alone, the others
// are of the whole deployment.
func Ranges() []Range {
	return []Range{
		{"15m", "15 minutes", recent, recentStep},
		{"1h", "1 hour", time.Hour, time.Minute},
		{"6h", "6 hours", 6 * time.Hour, 5 * time.Minute},
		{"24h", "24 hours", Kept, 15 * time.Minute},
	}
}

// Series returns a history in steps, the oldest first. The last step is incomplete.
func (r *Recorder) Series(series string, of Range) []Step {
	r.mu.Lock()
	defer r.mu.Unlock()
	width := int64(of.Step.Seconds())
	last := r.opt.Now().Unix() / width
	first := last - int64(of.Span/of.Step) + 1
	steps := make([]Step, 0, last-first+1)
	for n := first; n <= last; n++ {
		s := Step{At: time.Unix(n*width, 0).UTC()}
		if of.Step < time.Minute {
			s.Point, s.Known = r.fine[n][series], r.fine[n][running].In > 0
		} else {
			for minute := n * width / 60; minute < (n+1)*width/60; minute++ {
				for _, hours := range []map[int64]*chunk{r.saved, r.saving, r.unsaved} {
					s.add(hours[minute/60].at(series, minute%60))
					s.Known = s.Known || hours[minute/60].at(running, minute%60).In > 0
				}
			}
		}
		steps = append(steps, s)
	}
	return steps
}
