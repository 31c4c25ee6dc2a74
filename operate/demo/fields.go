package demo

import (
	"fmt"
	"math/rand/v2"
	"strconv"
)

// field is one member of a source's document.
type field struct {
	name  string
	value func(r *rand.Rand, entity int) string // JSON text
}

func pick(words ...string) func(*rand.Rand, int) string {
	return func(r *rand.Rand, _ int) string { return strconv.Quote(words[r.IntN(len(words))]) }
}

func whole(from, to int) func(*rand.Rand, int) string {
	return func(r *rand.Rand, _ int) string { return strconv.Itoa(from + r.IntN(to-from)) }
}

func decimal(from, to float64, digits int) func(*rand.Rand, int) string {
	return func(r *rand.Rand, _ int) string {
		return strconv.FormatFloat(from+r.Float64()*(to-from), 'f', digits, 64)
	}
}

// fields of registry, lab and market.
var fields = [3][]field{
	{
		{"id", func(_ *rand.Rand, i int) string { return strconv.Quote(EntityID(i)) }},
		{"origin", pick("EC", "CO", "CR", "PH", "GT", "CI")},
		{"variety", pick("Cavendish", "Plátano", "Red Dacca", "Lady Finger", "Blue Java")},
		{"farm", func(r *rand.Rand, _ int) string {
			n := r.IntN(40)
			return fmt.Sprintf(`{"id":"F-%02d","name":"Finca %d","certified":%t}`, n, n, n%3 == 0)
		}},
		{"harvested_on", func(r *rand.Rand, _ int) string { return fmt.Sprintf(`"2026-%02d-%02d"`, 1+r.IntN(6), 1+r.IntN(28)) }},
		{"weight", decimal(80, 220, 1)},
		{"length_mm", whole(90, 300)},
		{"grade", pick("extra", "I", "II")},
		{"lot", func(r *rand.Rand, _ int) string { return fmt.Sprintf(`"L%05d"`, r.IntN(5000)) }},
		{"organic", func(r *rand.Rand, _ int) string { return strconv.FormatBool(r.IntN(3) == 0) }},
		{"tags", func(r *rand.Rand, _ int) string {
			tags := []string{"fair-trade", "export", "premium", "bulk", "baby"}
			n := 1 + r.IntN(3)
			s := "["
			for i := range n {
				if i > 0 {
					s += ","
				}
				s += fmt.Sprintf(`{"name":%q,"since":%d}`, tags[(i*2+n)%len(tags)], 2018+r.IntN(8))
			}
			return s + "]"
		}},
		{"container", func(r *rand.Rand, _ int) string { return fmt.Sprintf(`"MSKU%07d"`, r.IntN(300)) }},
	},
	{
		{"ripeness_level", whole(1, 8)},
		{"sugar", decimal(8, 24, 2)},
		{"firmness", whole(20, 100)},
		{"residues", func(r *rand.Rand, _ int) string {
			return fmt.Sprintf(`{"thiabendazole":%s,"imazalil":%s}`, strconv.FormatFloat(r.Float64(), 'f', 3, 64), strconv.FormatFloat(r.Float64(), 'f', 3, 64))
		}},
		{"inspector", pick("ana", "bo", "chi", "dana")},
	},
	{
		{"price", decimal(0.2, 3, 2)},
		{"currency", pick("EUR", "USD")},
		{"demand", pick("low", "normal", "high")},
		{"reserved_for", pick("north", "south", "east", "west")},
	},
}

// fieldNames is the order before shuffling: fixed, since maps have none.
var fieldNames = func() []string {
	var names []string
	for _, s := range fields {
		for _, f := range s {
			names = append(names, f.name)
		}
	}
	return append(names, "updated_at", "trace_id")
}()
