package canonicaltree

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// member is a member of a document for the benchmarks: fixed content, in an
// order that may be shuffled at every level.
type member struct {
	name  string
	value any // string, the literal of a number or word as literal, []any, []member
}

type literal string

func appendSample(dst []byte, v any, r *rand.Rand) []byte {
	switch v := v.(type) {
	case string:
		return AppendString(dst, v)
	case literal:
		return append(dst, v...)
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendSample(dst, e, r)
		}
		return append(dst, ']')
	case []member:
		dst = append(dst, '{')
		order := make([]int, len(v))
		for i := range order {
			order[i] = i
		}
		if r != nil {
			order = r.Perm(len(v))
		}
		for i, k := range order {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, v[k].name), ':')
			dst = appendSample(dst, v[k].value, r)
		}
		return append(dst, '}')
	}
	panic(fmt.Sprintf("%T", v))
}

// event is about 180 bytes, entity about 2 kB and nested, wide has 500 members.
func event(i int) any {
	return []member{
		{"banana_id", fmt.Sprintf("B-%05d", i)},
		{"colour", []string{"green", "yellow", "brown"}[i%3]},
		{"farm", []member{{"country", "EC"}, {"id", literal(fmt.Sprint(i % 97))}}},
		{"lot", fmt.Sprintf("2026-%03d-c", i)},
		{"organic", literal([]string{"true", "false"}[i%2])},
		{"ripeness_level", literal(fmt.Sprintf("%d.%d", i%5, i%10))},
		{"seen_at", fmt.Sprintf("2026-01-%02dT12:00:%02dZ", 1+i%28, i%60)},
		{"weight", literal(fmt.Sprint(120 + i%80))},
	}
}

func entity(i int) any {
	var scans []any
	for k := range 7 {
		scans = append(scans, []member{
			{"at", fmt.Sprintf("2026-01-%02dT%02d:00:00Z", 1+i%28, k)},
			{"device", fmt.Sprintf("scanner-%03d", (i+k)%50)},
			{"grade", literal(fmt.Sprintf("%d.%d", k, i%10))},
			{"note", "surface scan, no defects found on either side"},
			{"position", []member{{"lat", literal("-2.189412")}, {"lon", literal("-79.889067")}}},
		})
	}
	var tags []any
	for k := range 12 {
		tags = append(tags, []member{{"name", fmt.Sprintf("tag-%d", k)}, {"score", literal(fmt.Sprintf("0.%d", 100+k))}})
	}
	return []member{
		{"attributes", []member{
			{"certificates", []any{"fairtrade", "rainforest", "organic-eu"}},
			{"description", "Cavendish banana, hand-picked, washed and packed at origin; keep at 13.5 °C"},
			{"owner", literal("null")},
			{"weight", literal(fmt.Sprint(120 + i%80))},
		}},
		{"event", event(i)},
		{"history", scans},
		{"id", fmt.Sprintf("B-%05d", i)},
		{"tags", tags},
		{"valid", literal("true")},
	}
}

func wideObject(i int) any {
	var all []member
	for k := range 500 {
		all = append(all, member{fmt.Sprintf("sensor_%03d", k), literal(fmt.Sprintf("%d.%d", k, i%10))})
	}
	return all
}

// order is the order of the members of sample documents.
type order string

const (
	inOrder  order = "sorted"
	stable   order = "stable" // not sorted, but in all documents alike: most producers
	anyOrder order = "shuffled"
)

// samples returns documents of one form: the same content for every order and
// seed.
func samples(form func(int) any, by order, seed uint64) [][]byte {
	r := rand.New(rand.NewPCG(seed, seed))
	var docs [][]byte
	for i := range 64 {
		switch by {
		case inOrder:
			r = nil
		case stable:
			r = rand.New(rand.NewPCG(seed, seed))
		}
		docs = append(docs, appendSample(nil, form(i), r))
	}
	return docs
}

// each runs f over every form and order; again has the same content, unless it
// is sorted in another order.
func each(b *testing.B, f func(b *testing.B, docs, again [][]byte)) {
	for _, form := range []struct {
		name string
		of   func(int) any
	}{{"event", event}, {"entity", entity}, {"wide", wideObject}} {
		for _, by := range []order{inOrder, stable, anyOrder} {
			docs, again := samples(form.of, by, 1), samples(form.of, by, 2)
			b.Run(form.name+"/"+string(by), func(b *testing.B) {
				b.SetBytes(int64(len(bytes.Join(docs, nil)) / len(docs)))
				b.ReportAllocs()
				f(b, docs, again)
			})
		}
	}
}

func BenchmarkParse(b *testing.B) {
	each(b, func(b *testing.B, docs, _ [][]byte) {
		for i := 0; b.Loop(); i++ {
			tree, err := Parse(docs[i%len(docs)])
			if err != nil {
				b.Fatal(err)
			}
			tree.Release()
		}
	})
}

func BenchmarkSum(b *testing.B) {
	each(b, func(b *testing.B, docs, _ [][]byte) {
		for i := 0; b.Loop(); i++ {
			if _, err := Sum(docs[i%len(docs)], Literal); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func roots(b *testing.B, docs [][]byte) (nodes []Node) {
	for _, doc := range docs {
		nodes = append(nodes, parse(b, string(doc)))
	}
	return nodes
}

// BenchmarkEqual compares equal documents, to the end.
func BenchmarkEqual(b *testing.B) {
	each(b, func(b *testing.B, docs, again [][]byte) {
		before, after := roots(b, docs), roots(b, again)
		for i := 0; b.Loop(); i++ {
			if !Equal(before[i%len(docs)], after[i%len(docs)], Literal) {
				b.Fatal("not equal")
			}
		}
	})
}

// BenchmarkDiff compares documents in which one value has become longer.
func BenchmarkDiff(b *testing.B) {
	each(b, func(b *testing.B, docs, again [][]byte) {
		var changed [][]byte
		for _, doc := range again {
			changed = append(changed, bytes.Replace(doc, []byte(`1`), []byte(`11`), 1))
		}
		before, after := roots(b, docs), roots(b, changed)
		visits := 0
		visit := func(Path, Node, Node) bool { visits++; return true }
		for i := 0; b.Loop(); i++ {
			Diff(before[i%len(docs)], after[i%len(docs)], visit)
		}
		if visits == 0 {
			b.Fatal("no difference")
		}
	})
}
