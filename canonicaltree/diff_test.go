package canonicaltree

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/tidwall/gjson"
)

// differences lists what Diff visits as "path: a -> b".
func differences(a, b Node) []string {
	var all []string
	Diff(a, b, func(p Path, x, y Node) bool {
		all = append(all, fmt.Sprintf("%s: %s -> %s", p, x.Raw(), y.Raw()))
		return true
	})
	return all
}

func TestDiff(t *testing.T) {
	for name, test := range map[string]struct {
		a, b string
		want []string
	}{
		"equal":           {`{"a":[1,{"b":null}]}`, ` { "a" : [1, {"b":null}]}`, nil},
		"root":            {`1`, `2`, []string{": 1 -> 2"}},
		"kinds":           {`{"a":[]}`, `{"a":{}}`, []string{"a: [] -> {}"}},
		"literals":        {`[1,1.0]`, `[1.0,1.0]`, []string{"0: 1 -> 1.0"}},
		"deepest":         {`{"a":{"b":{"c":1,"d":2}}}`, `{"a":{"b":{"d":3,"c":1}}}`, []string{"a.b.d: 2 -> 3"}},
		"missing members": {`{"b":1,"a":2,"d":4}`, `{"c":3,"b":1}`, []string{"a: 2 -> ", "c:  -> 3", "d: 4 -> "}},
		"null":            {`{"a":null}`, `{}`, []string{"a: null -> "}},
		"longer array":    {`[1,[2]]`, `[1,[2,3,4],5]`, []string{"1.1:  -> 3", "1.2:  -> 4", "2:  -> 5"}},
		"shorter array":   {`[[],1]`, `[]`, []string{"0: [] -> ", "1: 1 -> "}},
		"prefix number":   {`[1]`, `[12]`, []string{"0: 1 -> 12"}},
		"swapped":         {`[12,3]`, `[1,23]`, []string{"0: 12 -> 1", "1: 3 -> 23"}},
		"same length":     {`{"x":{"k":1,"l":2},"y":3}`, `{"y":3,"x":{"l":2,"k":0}}`, []string{"x.k: 1 -> 0"}},
		"after agreement": {`[[1,2],[3,4],{"a":5}]`, `[[1,0],[3,0],{"a":5}]`, []string{"0.1: 2 -> 0", "1.1: 4 -> 0"}},
		"escapes":         {`{"\u0061":"\u0062"}`, `{"a":"b"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, differences(parse(t, test.a), parse(t, test.b)))
		})
	}
	t.Run("absent", func(t *testing.T) {
		one := parse(t, `1`)
		assert.Equal(t, []string{":  -> 1"}, differences(Node{}, one))
		assert.Equal(t, []string{": 1 -> "}, differences(one, Node{}))
		assert.Empty(t, differences(Node{}, Node{}))
	})
	t.Run("stops", func(t *testing.T) {
		visits := 0
		Diff(parse(t, `{"a":[1,2],"b":3}`), parse(t, `{"a":[0,0],"b":0}`), func(Path, Node, Node) bool {
			visits++
			return false
		})
		assert.Equal(t, 1, visits)
	})
}

func TestPathString(t *testing.T) {
	assert.Empty(t, Path(nil).String())
	assert.Equal(t, `a.0.b\.c.\*\?\\`, Path{"a", "0", "b.c", `*?\`}.String())
	for c := range 256 {
		part := string([]byte{'x', byte(c), 'y'})
		assert.Equal(t, gjson.Escape(part), Path{part}.String())
	}
}
