package reconcile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Verdict is how an entity in a target compares with its dam row.
type Verdict string

// The verdicts; see the package comment. Missing to Ahead are drift.
const (
	InStep Verdict = "in_step"
	Queued Verdict = "queued"
	// Unknown: the dam state is unknown.
	Unknown Verdict = "unknown"
	// Refused: the newest change is a dead letter or was one, and is held back.
	Refused Verdict = "refused"
	// Expired: the target holds nothing, and expires old rows.
	Expired Verdict = "expired"
	Missing Verdict = "missing"
	Stale   Verdict = "stale"
	Differs Verdict = "differs"
	Extra   Verdict = "extra"
	Ahead   Verdict = "ahead"
)

// Store is the read access to the store; store.Operator is one.
type Store interface {
	ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error)
	Rows(ctx context.Context, keys []store.Key) ([]store.Row, error)
	Entity(ctx context.Context, id string) (store.Entity, error)
	ListLetters(ctx context.Context, f store.LetterFilter) ([]store.DeadLetter, error)
	operate.ProgressStore
}

// Input is one comparison. All fields are needed unless they say a default.
type Input struct {
	Store   Store
	Plan    *decide.Plan
	Service decide.Service // of the plan
	Target  sinks.Scannable
	// Forgets reports that the target expires old rows, so a missing row proves nothing.
	Forgets bool
	// Versions leaves out values of rows of the delivered version, which count as in step.
	Versions bool
	// Page is how many rows are read at a time. Defaults to 500.
	Page int
	// Samples is how many findings of each verdict the result names. Defaults to none.
	Samples int
	// Repair, if given, is called with each entity that a forced decision repairs.
	Repair func(entity string) error
	// Progress, if given, is called with how many dam rows were compared.
	Progress func(rows int64)
}

// Result of one service.
type Result struct {
	Service string `json:"service"`
	Rows    int64  `json:"dam_rows"`
	InStep  int64  `json:"in_step"`
	Queued  int64  `json:"queued"`
	Unknown int64  `json:"unknown,omitempty"`
	Refused int64  `json:"refused,omitempty"`
	Expired int64  `json:"expired,omitempty"`
	Missing int64  `json:"missing"`
	Stale   int64  `json:"stale"`
	Differs int64  `json:"differs"`
	Extra   int64  `json:"extra"`
	Ahead   int64  `json:"ahead"`
	// NotCompared counts the rows among InStep whose values were not compared.
	NotCompared int64 `json:"not_compared,omitempty"`
	// ByHand counts the drift that no decision repairs.
	ByHand  int64     `json:"by_hand"`
	Samples []Finding `json:"samples,omitempty"`
}

// Drift is how many entities drifted.
func (r *Result) Drift() int64 { return r.Missing + r.Stale + r.Differs + r.Extra + r.Ahead }

// Finding is one drifted entity.
type Finding struct {
	Entity  string  `json:"entity"`
	Verdict Verdict `json:"verdict"`
	// Held and Decided are versions, as generation:offset: in the target, and newest
	// in the dam. Empty is none.
	Held    string `json:"held,omitempty"`
	Decided string `json:"decided,omitempty"`
	// Columns are the columns with another value.
	Columns []string `json:"columns,omitempty"`
	// Statement removes the entity from the target, for drift that no decision repairs.
	Statement string `json:"statement,omitempty"`
}

const defaultPage = 500

// errBeyond ends a scan that left its range.
var errBeyond = errors.New("beyond the page")

// Compare compares all of one service. It writes nothing. With an error the result covers the
// rows compared before it.
func Compare(ctx context.Context, in Input) (Result, error) {
	in.Page = defaults.Positive(in.Page, defaultPage)
	c := &comparison{Input: in, result: Result{Service: in.Service.Name}}
	for after := ""; ; {
		// Before the rows: a position also passes changes that a newer decision replaced.
		var err error
		if c.reached, err = operate.ReadProgress(ctx, in.Store); err != nil {
			return c.result, fmt.Errorf("store: %w", err)
		}
		rows, err := in.Store.ServiceRows(ctx, in.Service.Number, after, in.Page)
		if err != nil {
			return c.result, fmt.Errorf("store: %w", err)
		}
		upTo := "" // to the end of the target
		if len(rows) == in.Page {
			upTo = rows[len(rows)-1].Entity
		}
		if err := c.page(ctx, after, upTo, rows); err != nil {
			return c.result, err
		}
		if upTo == "" {
			return c.result, nil
		}
		after = upTo
	}
}

// comparison is one Compare. Not for concurrent use.
type comparison struct {
	Input
	result  Result
	reached *operate.DeliveryProgress
	values  []valued // of the scan
}

// valued is a row whose values the scan does not show.
type valued struct {
	row  *store.Row
	held sinks.TargetRow
}

// page compares dam rows with the target's range behind after up to upTo, which
// is without end when it is empty.
func (c *comparison) page(ctx context.Context, after, upTo string, rows []store.Row) error {
	for done := false; !done; {
		var beyond []sinks.TargetRow // unknown to the dam rows
		c.values = c.values[:0]
		n, from := 0, after
		err := c.Target.Scan(ctx, from, c.Page, func(h sinks.TargetRow) error {
			if n++; h.Entity <= after {
				return fmt.Errorf("the target's rows do not come in the order of their entities: %q after %q", h.Entity, after)
			}
			if upTo != "" && h.Entity > upTo {
				return errBeyond
			}
			after = h.Entity
			for len(rows) > 0 && rows[0].Entity < h.Entity {
				if err := c.absent(ctx, &rows[0]); err != nil {
					return err
				}
				rows = rows[1:]
			}
			var row *store.Row
			if len(rows) > 0 && rows[0].Entity == h.Entity {
				row, rows = &rows[0], rows[1:]
				c.result.Rows++
			}
			switch {
			case row == nil && h.Deleted:
				return nil // a tombstone that outlived its dam row
			case row == nil, h.Version > row.Version:
				h.Doc = nil
				beyond = append(beyond, h)
				return nil
			}
			return c.both(ctx, row, h)
		})
		switch {
		case errors.Is(err, errBeyond):
			done = true
		case err != nil:
			return fmt.Errorf("service %s: %w", c.Service.Name, err)
		default:
			done = n < c.Page
		}
		// After each scan: a target may hold any number that the dam does not know.
		if err := c.again(ctx, beyond); err != nil {
			return err
		}
		if err := c.compareValues(ctx); err != nil {
			return err
		}
	}
	for i := range rows {
		if err := c.absent(ctx, &rows[i]); err != nil {
			return err
		}
	}
	if c.Progress != nil {
		c.Progress(c.result.Rows)
	}
	return ctx.Err()
}

// standing judges a dam row without looking at the target: Unknown, Refused, Queued, or
// InStep when the target has the row's content.
func (c *comparison) standing(row *store.Row) Verdict {
	switch {
	case row.Content == nil:
		return Unknown
	case row.Refused:
		return Refused
	case row.Version >= c.reached.Position(c.reached.Partition(row.Entity, row.Version), row.Service):
		return Queued
	}
	return InStep
}

// absent judges a dam row of which the target has nothing.
func (c *comparison) absent(ctx context.Context, row *store.Row) error {
	c.result.Rows++
	verdict := c.standing(row)
	switch {
	case verdict != InStep, row.Content.IsRetracted():
	case c.Forgets:
		verdict = Expired
	default:
		verdict = Missing
	}
	return c.found(ctx, verdict, row, sinks.TargetRow{Entity: row.Entity})
}

// both judges a row that the dam and the target have, the target's not being
// newer than the dam's.
func (c *comparison) both(ctx context.Context, row *store.Row, h sinks.TargetRow) error {
	verdict, older := c.standing(row), h.Version < row.Version
	switch shown := !h.Deleted; {
	case verdict != InStep:
	case shown && row.Content.IsRetracted():
		verdict = Extra
	case older && c.Service.Log:
		verdict = Stale
	case h.Deleted != row.Content.IsRetracted():
		verdict = differs(older)
	case h.Deleted:
	case c.Versions && !older, row.Content.Scheme() != canonicaltree.Scheme:
		c.result.NotCompared++
	case c.hashes(row, h):
	case h.Doc != nil && !h.Respelled:
		verdict = differs(older)
	default:
		h.Doc = nil
		c.values = append(c.values, valued{row, h})
		return nil
	}
	return c.found(ctx, verdict, row, h)
}

// differs is the verdict about a row with another content. That of a state sink with the content is
// right also if it is older: content that is at a target is not written again.
func differs(older bool) Verdict {
	if older {
		return Stale
	}
	return Differs
}

// hashes reports whether the target's document has the hash of the delivered one.
func (c *comparison) hashes(row *store.Row, h sinks.TargetRow) bool {
	if h.Doc == nil {
		return false
	}
	digest, err := c.projection().Content(h.Doc)
	return err == nil && bytes.Equal(change.Hashed(canonicaltree.Scheme, digest), row.Content)
}

// compareValues lets the target compare documents of the scan with its values.
func (c *comparison) compareValues(ctx context.Context) error {
	var expected []sinks.Expected
	content := c.content()
	for _, v := range c.values {
		doc, err := c.delivered(ctx, v.row)
		if err != nil {
			return err
		}
		if doc != nil {
			expected = append(expected, sinks.Expected{Entity: v.row.Entity, Version: v.held.Version, Doc: doc, Content: content})
		}
	}
	var differing map[string][]string
	if len(expected) > 0 {
		var err error
		if differing, err = c.Target.Compare(ctx, expected); err != nil {
			return fmt.Errorf("service %s: %w", c.Service.Name, err)
		}
	}
	for _, v := range c.values {
		verdict := InStep
		columns, compared := differing[v.row.Entity]
		switch {
		case !compared:
			c.result.NotCompared++
		case len(columns) > 0:
			verdict = differs(v.held.Version < v.row.Version)
		}
		if err := c.found(ctx, verdict, v.row, v.held, columns...); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) projection() *projections.Projection {
	return c.Plan.Projections[c.Service.Projection]
}

// content returns a function for the compared part of a view, or nil if all of it counts: a
// target holds carried and normalised values as of their delivery.
func (c *comparison) content() func(doc []byte) (string, error) {
	p := c.projection()
	if p.Exact() {
		return nil
	}
	return func(doc []byte) (string, error) {
		digest, err := p.Content(doc)
		return string(digest[:]), err
	}
}

// delivered returns the delivered document of a dam row. The row has only its hash, so it is the
// present view of the entity if that has the same content, else nil.
func (c *comparison) delivered(ctx context.Context, row *store.Row) ([]byte, error) {
	e, err := c.Store.Entity(ctx, row.Entity)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	inspected, err := c.Plan.Inspect(e)
	if err != nil {
		return nil, err
	}
	view, err := inspected.View(c.Service.Projection)
	if err != nil || !view.Match || !bytes.Equal(view.Content, row.Content) {
		return nil, nil //nolint:nilerr // a newer change is queued, or cannot be projected
	}
	return view.Doc, nil
}

// again judges the target's rows beyond the dam rows that were read before
// it: rows that were decided meanwhile are there now.
func (c *comparison) again(ctx context.Context, beyond []sinks.TargetRow) error {
	if len(beyond) == 0 {
		return nil
	}
	keys := make([]store.Key, len(beyond))
	for i, h := range beyond {
		keys[i] = store.Key{Service: c.Service.Number, Entity: h.Entity}
	}
	rows, err := c.Store.Rows(ctx, keys)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for i, h := range beyond {
		verdict := Queued
		switch row := &rows[i]; {
		case !row.Found:
			verdict = Extra
		case h.Version > row.Version:
			verdict = Ahead
		}
		if err := c.found(ctx, verdict, &rows[i], h); err != nil {
			return err
		}
	}
	return nil
}

func drifted(v Verdict) bool {
	return slices.Contains([]Verdict{Missing, Stale, Differs, Extra, Ahead}, v)
}

// found counts a verdict and keeps a sample of it.
func (c *comparison) found(ctx context.Context, v Verdict, row *store.Row, h sinks.TargetRow, columns ...string) error {
	byHand := v == Ahead || v == Extra && !row.Found
	if drifted(v) && !byHand {
		var err error
		if v, err = c.standby(ctx, v, row); err != nil {
			return err
		}
	}
	counter := map[Verdict]*int64{
		InStep: &c.result.InStep, Queued: &c.result.Queued, Unknown: &c.result.Unknown, Refused: &c.result.Refused, Expired: &c.result.Expired, Missing: &c.result.Missing,
		Stale: &c.result.Stale, Differs: &c.result.Differs, Extra: &c.result.Extra, Ahead: &c.result.Ahead,
	}[v]
	*counter++
	if !drifted(v) {
		return nil
	}
	if byHand {
		c.result.ByHand++
	}
	if *counter <= int64(c.Samples) {
		f := Finding{Entity: h.Entity, Verdict: v, Held: words(h.Version), Decided: words(row.Version), Columns: columns}
		if byHand {
			f.Statement = c.Target.DeleteStatement(h.Entity)
		}
		c.result.Samples = append(c.result.Samples, f)
	}
	if byHand || c.Repair == nil {
		return nil
	}
	return c.Repair(h.Entity)
}

// standby judges drift by the dead letters of the row: Queued while a change of the entity
// is tried again, Refused if the newest is an open letter that the row does not know yet, else v.
func (c *comparison) standby(ctx context.Context, v Verdict, row *store.Row) (Verdict, error) {
	f := store.LetterFilter{Stage: store.StageDeliver, Service: c.Service.Name, Entity: row.Entity}
	for {
		letters, err := c.Store.ListLetters(ctx, f)
		if err != nil {
			return v, fmt.Errorf("store: %w", err)
		}
		for i := range letters {
			switch l := &letters[i]; {
			case l.State == store.LetterRetrying:
				return Queued, nil
			case l.State == store.LetterOpen && l.Version == row.Version:
				v = Refused
			}
			f.AfterID = letters[i].ID
		}
		if len(letters) == 0 {
			return v, nil
		}
	}
}

func words(v change.Version) string {
	if v == 0 {
		return ""
	}
	return v.String()
}
