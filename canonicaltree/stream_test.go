package canonicaltree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// streamed checks the one-pass digest against that of the index, and returns
// whether there was one.
func streamed(t require.TestingT, doc string) (accepted bool) {
	for _, numbers := range []Numbers{Literal, Decimal} {
		var d Digest
		if d, accepted = streamSum([]byte(doc), numbers); !accepted {
			continue
		}
		tree, err := Parse([]byte(doc))
		require.NoError(t, err, "%q", doc)
		require.Equal(t, tree.Root().Sum(numbers), d, "%q", doc)
		tree.Release()
	}
	return accepted
}

func TestOnePassAndIndexAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		require.True(t, streamed(t, drawValue(t, 4).write(t)))
	})
	for _, form := range []func(int) any{event, entity, wideObject} {
		for _, by := range []order{inOrder, stable, anyOrder} {
			for _, doc := range samples(form, by, 3) {
				require.True(t, streamed(t, string(doc)))
			}
		}
	}
}

// One byte of a document becomes another one: whether or not that breaks it, the
// pass accepts nothing that the index refuses, and returns no other digest.
func TestOnePassAcceptsNothingElse(t *testing.T) {
	accepted, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		doc := []byte(drawValue(t, 3).write(t))
		for range 20 {
			changed := append([]byte(nil), doc...)
			i := rapid.IntRange(0, len(doc)-1).Draw(t, "at")
			changed[i] = rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte(`{}[]",:\ 0-.eu`+"\x00"))).Draw(t, "byte")
			if i > 0 && rapid.Bool().Draw(t, "cut") {
				changed = changed[:i]
			}
			if streamed(t, string(changed)) {
				accepted++
			} else {
				refused++
			}
		}
	})
	require.Positive(t, accepted)
	require.Positive(t, refused)
}

// Where the encoding needs more room than the document: heads of two bytes and
// more, normal forms with an exponent.
func TestOnePassHasRoom(t *testing.T) {
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	digits := strings.Repeat("7", 24)
	for name, doc := range map[string]string{
		"decimals":           list(5000, "1.5"),
		"zeros":              list(5000, "0.10e5"),
		"long numbers":       list(500, digits),
		"longer numbers":     list(60, strings.Repeat(digits, 12)),
		"long fractions":     list(200, "0."+strings.Repeat("0", 99)+"1"),
		"strings of 24":      list(500, `"`+strings.Repeat("x", 24)+`"`),
		"strings of 256":     list(100, `"`+strings.Repeat("x", 256)+`"`),
		"arrays of 24":       list(200, list(24, "1")),
		"arrays of 300":      list(24, list(300, "1")),
		"one":                "1",
		"one number of 24":   digits,
		"empty":              list(300, `{"":[]}`),
		"swapped at the end": `{"b":1,"a":2}`,
		"string at the end":  `"abcdefgh` + strings.Repeat("i", 15) + `"`,
	} {
		assert.True(t, streamed(t, doc), name)
	}
	for n := range 80 {
		assert.True(t, streamed(t, `"`+strings.Repeat("x", n)+`"`))
		assert.True(t, streamed(t, `{"b`+strings.Repeat("x", n)+`":1,"a":"`+strings.Repeat("y", n)+`"}`))
		assert.True(t, streamed(t, strings.Repeat("9", n+1)))
	}
}

// Objects of every size around those that are sorted in another way, with names
// that differ in their first bytes, late or in length only.
func TestOnePassSorts(t *testing.T) {
	for n := 2; n < 70; n++ {
		for _, name := range []func(int) string{
			func(i int) string { return fmt.Sprintf("%02d", i) },
			func(i int) string { return fmt.Sprintf("a_common_prefix_%02d", i) },
			func(i int) string { return strings.Repeat("a", i) },
			func(i int) string { return strings.Repeat("name ", 60) + fmt.Sprint(i) },
		} {
			for _, order := range [][]int{shuffled(n), reversed(n)} {
				doc := string(object(n, order, name))
				require.True(t, streamed(t, doc))
				twice := strings.TrimSuffix(doc, "}") + fmt.Sprintf(",%q:1}", name(n/2))
				require.False(t, streamed(t, twice))
				refused(t, twice)
			}
		}
	}
}

func TestOnePassLeavesTheUnusualToTheIndex(t *testing.T) {
	for name, doc := range map[string]string{
		"deep":  strings.Repeat("[", streamDepth+1) + strings.Repeat("]", streamDepth+1),
		"large": `"` + strings.Repeat("x", streamBytes) + `"`,
	} {
		assert.False(t, streamed(t, doc), name)
		d, err := Sum([]byte(doc), Literal)
		require.NoError(t, err)
		assert.Equal(t, parse(t, doc).Sum(Literal), d)
	}
}
