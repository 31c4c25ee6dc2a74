package oracle_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// shapingPlan has the fields of shaping as the product compiles them.
func shapingPlan(t require.TestingT) *decide.Plan {
	tenth := 1
	p := &decide.Plan{
		Merge: merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "a"}, {Name: "b", Mount: []string{"b"}}}}), Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20,
		Services: []decide.Service{{Name: "one", Number: 1}, {Name: "two", Number: 2, Projection: 1}},
	}
	for _, spec := range []projections.Spec{
		{Customer: "c", Name: "one", When: `doc.hidden != true`, Fields: []projections.Field{
			{Out: "name", Expr: `doc.first + "/" + (doc.b.last ?? "-")`, Default: []byte(`"unnamed"`)},
			{Out: "price", Path: "price", Same: &projections.Same{Round: &tenth}},
			{Out: "tags", Path: "tags", Same: &projections.Same{Set: true, Fold: true}},
		}, Carry: []projections.Field{{Out: "at", Path: "at"}, {Out: "n", Expr: "len(doc.tags)"}}},
		{Customer: "c", Name: "two", Fields: []projections.Field{{Out: "tags", Path: "tags"}}, Carry: []projections.Field{{Out: "price", Path: "price"}}},
	} {
		compiled, err := projections.Compile(spec)
		require.NoError(t, err)
		p.Projections = append(p.Projections, compiled)
	}
	require.NoError(t, p.Prepare())
	return p
}

// rounded rounds to one decimal place, half away from zero.
func rounded(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	r, _ := new(big.Rat).SetString(string(n))
	r.Mul(r, big.NewRat(10, 1)).Add(r, big.NewRat(int64(r.Sign()), 2))
	return new(big.Int).Quo(r.Num(), r.Denom()).String() + " tenths"
}

// folded is a set of texts without case.
func folded(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	all := []string{}
	for _, e := range list {
		all = append(all, strings.ToLower(fmt.Sprint(e)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// shaping is shapingPlan for the model.
var shaping = oracle.Config{
	Sources: []oracle.Source{{Name: "a", Entity: "id"}, {Name: "b", Entity: "id", Mount: "b"}},
	Projection: []oracle.Projection{
		{Services: []string{"one"}, When: func(d any) bool { return oracle.At(d, "hidden") != true }, Fields: []oracle.Field{
			{To: "name", Compute: func(d any) (any, bool) {
				first, ok := oracle.At(d, "first").(string)
				if !ok {
					return "unnamed", true
				}
				if last, ok := oracle.At(d, "b.last").(string); ok {
					return first + "/" + last, true
				}
				return first + "/-", true
			}},
			{To: "price", From: "price", Same: rounded}, {To: "tags", From: "tags", Same: folded}, {To: "at", From: "at", Carried: true},
			{To: "n", Carried: true, Compute: func(d any) (any, bool) {
				list, _ := oracle.At(d, "tags").([]any)
				return len(list), true
			}},
		}},
		{Services: []string{"two"}, Fields: []oracle.Field{{To: "tags", From: "tags"}, {To: "price", From: "price", Carried: true}}},
	},
}

// Over random histories the product sends the expected changes of computed and carried
// fields and rules of sameness, in every byte; and so it does when a restore of the store
// makes it decide the last events once more.
func TestShapedProjectionsAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
		var events []oracle.Event
		var records []change.Record
		for i := range rapid.IntRange(1, 25).Draw(t, "events") {
			source, id := pick("source", "a", "a", "b"), pick("id", "E", "F")
			doc := fmt.Sprintf(`{"id":%q,"first":%s,"price":%s,"tags":%s,"at":%d,"hidden":%s}`, id, pick("first", `"A"`, `"B"`, "null", "1"),
				pick("price", "1", "1.04", "1.05", "-0.04", "-0.05", "null", "2e0"), pick("tags", `["x","y"]`, `["Y","X","x"]`, `["z"]`, "[]", "null"), i, pick("hidden", "false", "false", "true"))
			if source == "b" {
				doc = fmt.Sprintf(`{"id":%q,"last":%s}`, id, pick("last", `"L"`, `"M"`, "null"))
			}
			events = append(events, oracle.Event{Source: source, Stream: source, Offset: int64(i), Version: uint64(change.NewVersion(1, int64(i))), Value: []byte(doc)})
			records = append(records, change.Record{Entity: id, Event: &change.Event{Origin: change.Origin{Source: source, Topic: source, Offset: int64(i)}, Op: change.Upsert, Payload: []byte(doc)}})
		}
		want, err := oracle.Run(shaping, events)
		require.NoError(t, err)
		got := map[string]map[uint64]string{}
		play := func(s *decide.Simulator, upTo int) {
			for _, r := range records[:upTo] {
				step, err := s.Apply(r, time.Unix(1000, 0))
				require.NoError(t, err)
				require.Empty(t, step.Letters)
				for _, c := range step.Sent {
					if got[c.Service] == nil {
						got[c.Service] = map[uint64]string{}
					}
					line := string(c.Op) + " " + string(c.Doc)
					if before, again := got[c.Service][uint64(c.Version)]; again {
						require.Equal(t, before, line, "decided once more, a change has the bytes of the first time")
					}
					got[c.Service][uint64(c.Version)] = line
				}
			}
		}
		plan := shapingPlan(t)
		play(decide.NewSimulator(plan), len(records))
		play(decide.NewSimulator(plan), rapid.IntRange(0, len(records)).Draw(t, "restored"))
		for service, sent := range got {
			n := 0
			for _, changes := range want[service] {
				n += len(changes)
				for _, c := range changes {
					op, doc, _ := strings.Cut(sent[c.Version], " ")
					require.Equal(t, c.Op, op, "%s %d", service, c.Version)
					if c.Op == "upsert" {
						value, err := oracle.Decode([]byte(doc))
						require.NoError(t, err)
						require.Equal(t, oracle.Text(c.Doc), oracle.Text(value), "%s %d", service, c.Version)
					}
				}
			}
			require.Len(t, sent, n, service)
		}
	})
}
