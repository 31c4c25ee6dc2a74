package main

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// corpus is a form of documents.
type corpus struct {
	name string
	of   func(i int) any
}

// member and literal, with string and []any, are what documents are made of:
// the content is fixed, the order of members is not.
type member struct {
	name  string
	value any
}

type literal string

var corpora = []corpus{
	{"event", event}, {"entity", entity}, {"wide", wide}, {"deep", deep}, {"strings", texts}, {"numbers", numbers},
}

const documents = 64 // of each corpus, so that branch predictors learn none by heart

// sample returns documents of one form, with sorted members or shuffled ones.
func (c corpus) sample(shuffled bool) [][]byte {
	var r *rand.Rand
	if shuffled {
		r = rand.New(rand.NewPCG(1, 2))
	}
	docs := make([][]byte, documents)
	for i := range docs {
		docs[i] = appendValue(nil, c.of(i), r)
	}
	return docs
}

func appendValue(dst []byte, v any, r *rand.Rand) []byte {
	switch v := v.(type) {
	case string:
		return canonicaltree.AppendString(dst, v)
	case literal:
		return append(dst, v...)
	case escapedText:
		return append(append(append(dst, '"'), v...), '"')
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendValue(dst, e, r)
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
			dst = append(canonicaltree.AppendString(dst, v[k].name), ':')
			dst = appendValue(dst, v[k].value, r)
		}
		return append(dst, '}')
	}
	panic(fmt.Sprintf("%T", v))
}

// escapedText is the content of a string as it is to be written.
type escapedText string

// event is about 180 bytes: what one source sends most of the time.
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

// entity is about 2 kB and nested, as a merge of several sources returns it.
func entity(i int) any {
	var scans, tags []any
	for k := range 7 {
		scans = append(scans, []member{
			{"at", fmt.Sprintf("2026-01-%02dT%02d:00:00Z", 1+i%28, k)},
			{"device", fmt.Sprintf("scanner-%03d", (i+k)%50)},
			{"grade", literal(fmt.Sprintf("%d.%d", k, i%10))},
			{"note", "surface scan, no defects found on either side"},
			{"position", []member{{"lat", literal("-2.189412")}, {"lon", literal("-79.889067")}}},
		})
	}
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

// wide is one object of 500 members.
func wide(i int) any {
	var all []member
	for k := range 500 {
		all = append(all, member{fmt.Sprintf("sensor_%03d", k), literal(fmt.Sprintf("%d.%d", k, i%10))})
	}
	return all
}

// deep nests objects and arrays 60 deep.
func deep(i int) any {
	var v any = literal(fmt.Sprint(i))
	for level := range 30 {
		v = []member{
			{"child", []any{v, literal("true")}},
			{"level", literal(fmt.Sprint(level))},
			{"name", fmt.Sprintf("node-%02d", level)},
		}
	}
	return v
}

// texts has long strings, plain, with escapes and outside ASCII.
func texts(i int) any {
	return []member{
		{"en", strings.Repeat("Picked green and ripened in transit, nothing to report. ", 6)},
		{"escaped", escapedText(strings.Repeat(`line one\nline \"two\"\tand a tab; \u00e9\u00e8 \ud83c\udf4c `, 6))},
		{"fr", strings.Repeat("Bananes récoltées à la main, séchées, emballées près de l’océan. ", 5)},
		{"id", fmt.Sprintf("B-%05d", i)},
		{"ja", strings.Repeat("手摘みのバナナ、洗浄して梱包。", 8)},
	}
}

// numbers has series of measurements.
func numbers(i int) any {
	series := func(form string) []any {
		var all []any
		for k := range 60 {
			all = append(all, literal(fmt.Sprintf(form, float64((i+1)*(k+7)*7919%1000003)/997)))
		}
		return all
	}
	return []member{
		{"exact", series("%.0f")},
		{"mean", series("%.4f")},
		{"raw", series("%.17g")},
		{"small", series("%.3e")},
	}
}
