package limits

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I4, I6: documents with 10,000 members and arrays of 10,000 elements come through, whole
// and in parts. A change of one member reaches the services that read it; another order, none.
func TestWideDocuments(t *testing.T) {
	wide(t, 10_000)
}

func wide(t *testing.T, n int) {
	p := harness.Simple(t, "", map[string]string{"few": harness.FileSink("few"), "whole": harness.FileSink("whole"), "names": harness.FileSink("names")})
	middle := fmt.Sprint("m", n/2)
	view := func(customer string, fields map[string]string) oracle.Projection {
		var lines strings.Builder
		v := oracle.Projection{Services: []string{customer + "/all@out"}}
		for to, from := range fields {
			fmt.Fprintf(&lines, "      %s: %q\n", to, from)
			v.Fields = append(v.Fields, oracle.Field{To: to, From: from})
		}
		p.Write("customers/"+customer+".yaml", fmt.Sprintf("customer: %s\nprojections:\n  all:\n    fields:\n%s    deliver: {out: %s}\n", customer, &lines, harness.FileSink(customer)))
		return v
	}
	config := harness.SimpleModel()
	config.Projection = []oracle.Projection{
		view("few", map[string]string{"id": "id", "one": "members." + middle}),
		view("whole", map[string]string{"members": "members", "list": "list"}),
		view("names", map[string]string{"id": "id", "names": "list.#.name"}),
	}
	order := rand.New(rand.NewPCG(4, uint64(n))).Perm(n)
	straight := make([]int, n)
	for i := range straight {
		straight[i] = i
	}
	var text strings.Builder
	event := func(id, body string) {
		fmt.Fprintf(&text, `{"event":"e%d","id":%q,%s}`+"\n", text.Len(), id, body)
	}
	event("M", members(straight, nil))
	event("M", members(order, nil))                              // only the order: nothing
	event("M", members(order, map[int]int{7: -1}))               // whole
	event("M", members(straight, map[int]int{7: -1, n / 2: -1})) // whole and few
	event("L", list(straight, 0))
	event("L", list(straight, 1)) // whole, the names are the same
	event("L", list(order, 1))    // whole and names: an array has an order
	p.Write("events.jsonl", text.String())
	start := time.Now()
	require.Zero(t, p.Drain().Dead)
	t.Logf("%d members: %d MiB of events in %.1f s", n, text.Len()>>20, time.Since(start).Seconds())

	input := harness.ReadLines(t, map[string]string{"events": p.Path("events.jsonl")})
	want, err := oracle.Run(config, harness.ModelEvents(t, 1, p.Inbox(), input.Find))
	require.NoError(t, err)
	input.Complete()
	for customer, changes := range map[string][2]int{"few": {2, 1}, "whole": {3, 3}, "names": {1, 2}} {
		service := customer + "/all@out"
		require.Len(t, want[service]["M"], changes[0], service)
		require.Len(t, want[service]["L"], changes[1], service)
		require.NoError(t, oracle.CheckLog(want, service, p.Records("out/"+customer+".jsonl")))
	}
}

// members is an object m0, m1, … in the given order, some with another value.
func members(order []int, changed map[int]int) string {
	var b strings.Builder
	for i, n := range order {
		if i > 0 {
			b.WriteByte(',')
		}
		v, ok := changed[n]
		if !ok {
			v = n
		}
		fmt.Fprintf(&b, `"m%d":%d`, n, v)
	}
	return `"members":{` + b.String() + `}`
}

// list is an array of names in the given order, and when they were seen.
func list(order []int, seen int) string {
	elements := make([]string, len(order))
	for i, n := range order {
		elements[i] = fmt.Sprintf(`{"name":"n%d","seen":%d}`, n, seen)
	}
	return `"list":[` + strings.Join(elements, ",") + `]`
}
