package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// world is a dam and a target in memory; between two reads something may happen.
type world struct {
	rows    map[string]store.Row
	docs    map[string]string // source documents by entity, as stored
	held    map[string]sinks.TargetRow
	columns map[string]string // the value of typed columns, as a document
	at      change.Version    // position of the service
	dead    []store.DeadLetter
	happens func()
	most    int // keys of one read of Rows

	versions bool // of Input
	typed    bool // the target has columns, and no documents to scan
}

func (w *world) tick() {
	if w.happens != nil {
		w.happens()
	}
}

func (w *world) ServiceRows(_ context.Context, _ int32, after string, limit int) (page []store.Row, err error) {
	w.tick()
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		if id > after && len(page) < limit {
			page = append(page, w.rows[id])
		}
	}
	return page, nil
}

func (w *world) Rows(_ context.Context, keys []store.Key) (rows []store.Row, err error) {
	w.tick()
	w.most = max(w.most, len(keys))
	for _, k := range keys {
		row := w.rows[k.Entity]
		row.Key = k
		rows = append(rows, row)
	}
	return rows, nil
}

// The service has one position, in the one partition that there is.
func (w *world) Marks(context.Context) (map[int32]store.Mark, error) {
	w.tick()
	return map[int32]store.Mark{0: {Watermark: v(1 << 20), LastTo: v(1 << 20)}}, nil
}

func (w *world) Inboxes(context.Context) ([]store.Inbox, error) {
	return []store.Inbox{{Generation: 1, Partitions: 1}}, nil
}

func (w *world) AllProgress(context.Context) ([]store.Progress, error) {
	w.tick()
	return []store.Progress{{Positions: []store.ServicePosition{{Service: 1, Version: w.at}}}}, nil
}

func (w *world) ListLetters(_ context.Context, f store.LetterFilter) (found []store.DeadLetter, err error) {
	for _, l := range w.dead {
		if l.Entity == f.Entity && l.Service == f.Service && l.Stage == f.Stage && l.ID > f.AfterID && len(found) == 0 {
			found = append(found, l)
		}
	}
	return found, nil
}

func (w *world) Entity(_ context.Context, id string) (store.Entity, error) {
	doc, ok := w.docs[id]
	if !ok {
		return store.Entity{}, store.ErrNotFound
	}
	return store.Entity{ID: id, Found: true, Docs: []byte(`{"lab":` + doc + `}`)}, nil
}

type target struct {
	sinks.Sink
	w *world
}

func (t target) Scan(_ context.Context, after string, limit int, visit func(sinks.TargetRow) error) error {
	t.w.tick()
	n := 0
	for _, id := range slices.Sorted(maps.Keys(t.w.held)) { // a snapshot, as of one statement
		if id > after && n < limit {
			n++
			h := t.w.held[id]
			if t.w.typed {
				h.Doc = nil
			}
			if err := visit(h); err != nil {
				return err
			}
		}
	}
	return nil
}

// Compare knows one column, n. A held row has its value in Doc, which Scan may have hidden.
func (t target) Compare(_ context.Context, expected []sinks.Expected) (map[string][]string, error) {
	t.w.tick()
	differing := map[string][]string{}
	for _, e := range expected {
		if h := t.w.held[e.Entity]; h.Version == e.Version {
			differing[e.Entity] = nil
			held := cmp.Or(t.w.columns[e.Entity], string(h.Doc))
			n, wanted := gjson.Get(held, "n"), gjson.GetBytes(e.Doc, "n")
			same := n.Num == wanted.Num
			if e.Content != nil && !same {
				left, _ := e.Content([]byte(`{"n":` + n.Raw + `}`))
				right, _ := e.Content([]byte(`{"n":` + wanted.Raw + `}`))
				same = left == right
			}
			if !same {
				differing[e.Entity] = []string{"n"}
			}
		}
	}
	return differing, nil
}

func (target) DeleteStatement(entity string) string { return "DELETE " + entity }

func plan(t testing.TB) *decide.Plan {
	m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "lab"}}})
	p, err := projections.Compile(projections.Spec{Customer: "acme", Name: "all", Fields: []projections.Field{{Out: "n", Path: "n"}}})
	require.NoError(t, err)
	plan := &decide.Plan{
		Merge: m, Projections: []*projections.Projection{p}, Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20,
		Services: []decide.Service{{Name: "acme/all@warehouse", Number: 1}},
	}
	require.NoError(t, plan.Prepare())
	return plan
}

func (w *world) compare(t testing.TB, page int) (Result, []string) {
	p := plan(t)
	var repaired []string
	r, err := Compare(context.Background(), Input{
		Store: w, Plan: p, Service: p.Services[0], Target: target{w: w}, Page: page, Samples: 100, Versions: w.versions,
		Repair: func(id string) error { repaired = append(repaired, id); return nil },
	})
	require.NoError(t, err)
	return r, repaired
}

func v(offset int64) change.Version { return change.NewVersion(1, offset) }

func hashed(doc string) change.Content {
	d, err := canonicaltree.Sum([]byte(doc), canonicaltree.Literal)
	if err != nil {
		panic(err)
	}
	return change.Hashed(canonicaltree.Scheme, d)
}

// row is a dam row whose newest change has a version.
func row(id string, version int64, content change.Content) store.Row {
	return store.Row{Key: store.Key{Service: 1, Entity: id}, Found: true, Version: v(version), Content: content}
}

func refused(r store.Row) store.Row {
	r.Refused = true
	return r
}

// Carried fields and values equal by a rule of sameness are no drift: a target's document is
// compared as decide compares.
func TestUncomparedPartsAreNoDrift(t *testing.T) {
	places := 0
	shaped, err := projections.Compile(projections.Spec{Customer: "acme", Name: "all", Fields: []projections.Field{{Out: "n", Path: "n", Same: &projections.Same{Round: &places}}},
		Carry: []projections.Field{{Out: "at", Path: "at"}}})
	require.NoError(t, err)
	digest, err := shaped.Content([]byte(`{"n":1.2,"at":1}`))
	require.NoError(t, err)
	p := plan(t)
	p.Projections[0] = shaped
	require.NoError(t, p.Prepare())
	for held, want := range map[string]Result{
		`{"n":1.2,"at":1}`: {InStep: 1}, `{"at":7,"n":0.9}`: {InStep: 1}, `{"n":1.6,"at":1}`: {Differs: 1}, `{"n":1.2,"at":1,"more":1}`: {Differs: 1},
		`column {"n":1.3}`: {InStep: 1}, `column {"n":1.6}`: {Differs: 1},
	} {
		held, typed := strings.CutPrefix(held, "column ")
		w := &world{rows: map[string]store.Row{"e": row("e", 5, change.Hashed(canonicaltree.Scheme, digest))}, at: v(100), docs: map[string]string{"e": `{"n":1.4,"at":2}`},
			held: map[string]sinks.TargetRow{"e": {Entity: "e", Version: v(5), Doc: []byte(held)}}, typed: typed}
		got, err := Compare(context.Background(), Input{Store: w, Plan: p, Service: p.Services[0], Target: target{w: w}})
		require.NoError(t, err)
		require.Equal(t, []int64{want.InStep, want.Differs, want.NotCompared}, []int64{got.InStep, got.Differs, got.NotCompared}, held)
	}
}

// A target may hold any number of entities that the dam does not know.
func TestUnknownEntitiesArePagedToo(t *testing.T) {
	const page, many = 10, 95
	w := &world{held: map[string]sinks.TargetRow{}, at: v(100)}
	for i := range many {
		id := fmt.Sprintf("e%03d", i)
		w.held[id] = sinks.TargetRow{Entity: id, Version: v(5), Doc: []byte(`{"n":1}`)}
	}
	r, _ := w.compare(t, page)
	require.EqualValues(t, many, r.Extra)
	require.LessOrEqual(t, w.most, page)
}

var (
	firstRow = hashed(`{"n":1}`)
	columns  = &sinks.TargetRow{Version: v(5)}
	noRow    = change.Retracted()

	olderColumns = &sinks.TargetRow{Version: v(4)}
)

func held(version int64, doc string) *sinks.TargetRow {
	return &sinks.TargetRow{Version: v(version), Deleted: doc == "", Doc: []byte(doc)}
}

func respelled(version int64, doc string) *sinks.TargetRow {
	h := held(version, doc)
	h.Respelled = true
	return h
}

var verdicts = map[string]struct {
	row    store.Row
	at     int64 // the service's position; 0 is behind everything
	held   *sinks.TargetRow
	doc    string // of the entity
	dead   int64  // version of an open dead letter
	want   Verdict
	byHand bool

	column                string // the value of typed columns
	versions, notCompared bool
	retried               bool // the dead letter
}{
	"the same":                                 {row: row("e", 5, firstRow), held: held(5, `{ "n":1}`), want: InStep},
	"equal columns":                            {row: row("e", 5, firstRow), held: columns, doc: `{"n":1}`, column: `{"n":1}`, want: InStep},
	"another value in a column":                {row: row("e", 5, firstRow), held: columns, doc: `{"n":1}`, column: `{"n":2}`, want: Differs},
	"another value, by versions only":          {row: row("e", 5, firstRow), held: columns, doc: `{"n":1}`, column: `{"n":2}`, versions: true, want: InStep, notCompared: true},
	"another document, by versions only":       {row: row("e", 5, firstRow), held: held(5, `{"n":2}`), versions: true, want: InStep, notCompared: true},
	"columns of an entity that changed since":  {row: row("e", 5, firstRow), held: columns, doc: `{"n":2}`, column: `{"n":2}`, want: InStep, notCompared: true},
	"columns of a deleted entity":              {row: row("e", 5, firstRow), held: columns, column: `{"n":2}`, want: InStep, notCompared: true},
	"retracted in both":                        {row: row("e", 5, noRow), held: held(5, ""), want: InStep},
	"retracted and cleaned up":                 {row: row("e", 5, noRow), want: InStep},
	"reset after it was delivered":             {row: row("e", 5, nil), held: held(5, `{"n":1}`), want: Unknown},
	"reset, and nothing there":                 {row: row("e", 5, nil), want: Unknown},
	"a tombstone that outlived the dam":        {held: held(5, ""), want: ""},
	"not delivered":                            {row: row("e", 5, firstRow), at: 5, want: Queued},
	"written, and that is not saved":           {row: row("e", 5, firstRow), at: 4, held: held(5, `{"n":1}`), want: Queued},
	"a newer one is on its way":                {row: row("e", 5, firstRow), at: 5, held: held(3, `{"n":2}`), want: Queued},
	"its retraction is on its way":             {row: row("e", 5, noRow), at: 5, held: held(3, `{"n":1}`), want: Queued},
	"the row is gone":                          {row: row("e", 5, firstRow), at: 6, want: Missing},
	"refused, and the row does not say so yet": {row: row("e", 5, firstRow), dead: 5, want: Refused},
	"refused":                           {row: refused(row("e", 5, firstRow)), want: Refused},
	"refused, and there after all":      {row: refused(row("e", 5, firstRow)), held: held(5, `{"n":1}`), want: Refused},
	"refused, and the one before there": {row: refused(row("e", 5, firstRow)), held: held(4, `{"n":2}`), want: Refused},
	"retried, and the one before there": {row: row("e", 5, firstRow), held: held(4, `{"n":2}`), dead: 5, retried: true, want: Queued},
	"retried, and nothing there":        {row: row("e", 5, firstRow), dead: 5, retried: true, want: Queued},
	"an older one was refused":          {row: row("e", 5, firstRow), dead: 4, want: Missing},
	"an older version":                  {row: row("e", 5, firstRow), held: held(4, `{"n":1}`), want: InStep},
	"an older document":                 {row: row("e", 5, firstRow), held: held(4, `{"n":2}`), want: Stale},
	"an older document, by versions":    {row: row("e", 5, firstRow), held: held(4, `{"n":2}`), versions: true, want: Stale},
	"an older column":                   {row: row("e", 5, firstRow), held: olderColumns, doc: `{"n":1}`, column: `{"n":2}`, versions: true, want: Stale},
	"an older column, equal":            {row: row("e", 5, firstRow), held: olderColumns, doc: `{"n":1}`, column: `{"n":1}`, want: InStep},
	"an older retraction":               {row: row("e", 5, noRow), held: held(4, ""), want: InStep},
	"retracted before":                  {row: row("e", 5, firstRow), held: held(4, ""), want: Stale},
	"another document":                  {row: row("e", 5, firstRow), held: held(5, `{"n":2}`), want: Differs},
	"no document any more":              {row: row("e", 5, firstRow), held: held(5, `{"n":`), want: Differs},
	"deleted by hand":                   {row: row("e", 5, firstRow), held: held(5, ""), want: Differs},
	"undeleted by hand":                 {row: row("e", 5, noRow), held: held(5, `{"n":1}`), want: Extra},
	"its retraction was lost":           {row: row("e", 5, noRow), held: held(3, `{"n":1}`), want: Extra},
	"unknown to the dam":                {held: held(5, `{"n":1}`), want: Extra, byHand: true},
	"never decided":                     {row: row("e", 5, firstRow), held: held(6, `{"n":1}`), want: Ahead, byHand: true},
	"a number in another spelling":      {row: row("e", 5, hashed(`{"n":1e2}`)), held: respelled(5, `{"n":100}`), doc: `{"n":1e2}`, want: InStep},
	"another number":                    {row: row("e", 5, hashed(`{"n":1e2}`)), held: respelled(5, `{"n":101}`), doc: `{"n":1e2}`, want: Differs},
}

// Each verdict, and whether a forced decision repairs it.
func TestVerdicts(t *testing.T) {
	for name, tc := range verdicts {
		t.Run(name, func(t *testing.T) {
			w := &world{rows: map[string]store.Row{}, held: map[string]sinks.TargetRow{}, docs: map[string]string{}, columns: map[string]string{"e": tc.column}, versions: tc.versions}
			if w.at = v(tc.at); tc.at == 0 {
				w.at = v(100)
			}
			w.dead = []store.DeadLetter{
				{ID: 3, Stage: store.StageDeliver, Service: "acme/all@warehouse", Entity: "e", Version: v(1)},
				{ID: 4, Stage: store.StageDeliver, Service: "acme/all@warehouse", Entity: "e", Version: v(tc.dead)},
				{ID: 6, Stage: store.StageDeliver, Service: "zest/all@warehouse", Entity: "e", Version: v(5)},
			}
			for i := range w.dead {
				w.dead[i].State = store.LetterOpen
			}
			if tc.retried {
				w.dead[1].State = store.LetterRetrying
			}
			if tc.row.Found {
				w.rows["e"] = tc.row
			}
			if tc.held != nil {
				held := *tc.held
				tc.held = &held
				tc.held.Entity = "e"
				if tc.held.Deleted || len(tc.held.Doc) == 0 {
					tc.held.Doc = nil
				}
				w.held["e"] = *tc.held
			}
			if tc.doc != "" {
				w.docs["e"] = tc.doc
			}
			r, repaired := w.compare(t, 10)
			got := map[Verdict]int64{}
			for verdict, n := range map[Verdict]int64{InStep: r.InStep, Queued: r.Queued, Unknown: r.Unknown, Refused: r.Refused, Missing: r.Missing, Stale: r.Stale, Differs: r.Differs, Extra: r.Extra, Ahead: r.Ahead} {
				if n > 0 {
					got[verdict] = n
				}
			}
			want := map[Verdict]int64{}
			if tc.want != "" {
				want[tc.want] = 1
			}
			assert.Equal(t, want, got)
			assert.Equal(t, tc.notCompared, r.NotCompared == 1)
			drifted := tc.want != "" && tc.want != InStep && tc.want != Queued && tc.want != Unknown && tc.want != Refused
			assert.Equal(t, drifted && !tc.byHand, len(repaired) == 1)
			assert.Equal(t, drifted, r.Drift() == 1)
			if drifted {
				require.Len(t, r.Samples, 1)
				assert.Equal(t, tc.byHand, r.Samples[0].Statement == "DELETE e")
				assert.Equal(t, tc.column != "" || tc.held != nil && tc.held.Respelled, len(r.Samples[0].Columns) == 1)
			}
		})
	}
}

// A table that forgets says nothing by a row that is not there.
func TestForgottenRowsAreNoDrift(t *testing.T) {
	p := plan(t)
	w := &world{rows: map[string]store.Row{"e": row("e", 5, hashed(`1`))}, at: v(6)}
	r, err := Compare(t.Context(), Input{Store: w, Plan: p, Service: p.Services[0], Target: target{w: w}, Forgets: true})
	require.NoError(t, err)
	assert.Zero(t, r.Drift())
	assert.EqualValues(t, 1, r.Expired)
}

// Where pages end makes no difference: nothing is skipped or seen twice at a boundary.
func TestPagesDoNotMatter(t *testing.T) {
	first := hashed(`{"n":1}`)
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rows: map[string]store.Row{}, held: map[string]sinks.TargetRow{}, at: v(6)}
		missing, extra, both := int64(0), int64(0), int64(0)
		for i := range rapid.IntRange(0, 30).Draw(t, "entities") {
			id := fmt.Sprintf("e%02d", i)
			in := rapid.IntRange(0, 2).Draw(t, "where")
			if in != 1 {
				w.rows[id] = row(id, 5, first)
			}
			if in != 0 {
				w.held[id] = sinks.TargetRow{Entity: id, Version: v(5), Doc: []byte(`{"n":1}`)}
			}
			*[]*int64{&missing, &extra, &both}[in]++
		}
		p := plan(&testing.T{})
		r, err := Compare(context.Background(), Input{
			Store: w, Plan: p, Service: p.Services[0], Target: target{w: w}, Page: rapid.IntRange(1, 7).Draw(t, "page"),
		})
		if err != nil || r.Missing != missing || r.Extra != extra || r.InStep != both || r.Rows != missing+both {
			t.Fatalf("%+v (%v), want missing %d, extra %d, in step %d", r, err, missing, extra, both)
		}
	})
}

// A pipeline that works meanwhile (decides, writes, saves positions, refuses,
// retracts, purges tombstones) is never reported as drift, in any order of events.
func TestWorkUnderWayIsNoDrift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{rows: map[string]store.Row{}, held: map[string]sinks.TargetRow{}, docs: map[string]string{}, typed: rapid.Bool().Draw(t, "typed")}
		ids := []string{"a", "b", "c", "d", "e", "f"}
		offset, begun := int64(0), change.Version(1<<62)
		released := map[string]change.Version{} // what waits to be released
		// The service gets changes in their order, without replaced ones.
		next := func() (string, bool) {
			for _, id := range ids {
				if r := w.rows[id]; r.Found && r.Version == w.at {
					return id, true
				}
			}
			return "", false
		}
		step := func() {
			id := rapid.SampledFrom(ids).Draw(t, "entity")
			r, known := w.rows[id]
			switch rapid.SampledFrom([]string{"decide", "write", "save", "refuse", "release", "purge"}).Draw(t, "step") {
			case "decide":
				offset++
				content := hashed(fmt.Sprintf(`{"n":%d}`, offset))
				if known && rapid.IntRange(0, 3).Draw(t, "retract") == 0 {
					content = change.Retracted()
				}
				w.docs[id] = fmt.Sprintf(`{"n":%d}`, offset)
				r.Key, r.Found, r.Version, r.Content = store.Key{Service: 1, Entity: id}, true, v(offset), content
				w.rows[id] = r
			case "write":
				if id, is := next(); is {
					r := w.rows[id]
					h := sinks.TargetRow{Entity: id, Version: r.Version, Deleted: r.Content.IsRetracted()}
					if !h.Deleted {
						h.Doc = fmt.Appendf(nil, `{"n":%d}`, r.Version.Offset())
					}
					w.held[id] = h
				}
			case "save":
				if id, is := next(); (!is || w.held[id].Version == w.at) && w.at <= v(offset) {
					w.at++
				}
			case "refuse":
				if id, is := next(); is && w.held[id].Version < w.at {
					w.dead = append(w.dead, store.DeadLetter{ID: w.at.Offset(), Stage: store.StageDeliver, Service: "acme/all@warehouse", Entity: id, Version: w.at, State: store.LetterOpen})
					released[id] = w.at
					w.at++
				}
			case "release":
				if released[id] == r.Version && known {
					r.Content = nil
					w.rows[id] = r
				}
			case "purge":
				// Tombstones are kept far longer than a comparison of a page takes.
				if known && r.Content.IsRetracted() && r.Version < w.at && released[id] != r.Version && r.Version <= begun {
					delete(w.rows, id)
				}
			}
		}
		w.at = v(0)
		for range rapid.IntRange(0, 40).Draw(t, "before") {
			step()
		}
		begun = v(offset)
		w.happens = func() {
			for range rapid.IntRange(0, 10).Draw(t, "meanwhile") {
				step()
			}
		}
		p := plan(&testing.T{})
		r, err := Compare(context.Background(), Input{
			Store: w, Plan: p, Service: p.Services[0], Target: target{w: w}, Page: rapid.IntRange(1, 4).Draw(t, "page"), Samples: 10,
		})
		if err != nil || r.Drift() != 0 {
			t.Fatalf("%+v (%v)", r, err)
		}
	})
}

// A target with another order is an error, not an endless read.
func TestTargetOutOfOrder(t *testing.T) {
	p := plan(t)
	w := &world{}
	_, err := Compare(t.Context(), Input{Store: w, Plan: p, Service: p.Services[0], Target: disordered{target{w: w}}, Page: 2})
	require.Error(t, err)
	assert.ErrorContains(t, err, "order")
	_, err = Compare(t.Context(), Input{Store: w, Plan: p, Service: p.Services[0], Target: broken{target{w: w}}})
	require.ErrorIs(t, err, errAway)
}

type disordered struct{ target }

func (disordered) Scan(_ context.Context, _ string, _ int, visit func(sinks.TargetRow) error) error {
	for _, id := range []string{"b", "a"} {
		if err := visit(sinks.TargetRow{Entity: id, Version: v(1), Deleted: true}); err != nil {
			return err
		}
	}
	return nil
}

var errAway = errors.New("away")

type broken struct{ target }

func (broken) Scan(context.Context, string, int, func(sinks.TargetRow) error) error { return errAway }
