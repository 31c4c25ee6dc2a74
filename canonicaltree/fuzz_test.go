package canonicaltree

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzAgainstJSONText compares acceptance and equality with jsontext, which
// refuses duplicate names and bad UTF-8 too, and acceptance with encoding/json,
// which takes more.
func FuzzAgainstJSONText(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.50],"\u0062":"\ud83c\udf4c"}`), []byte(` {"b":"🍌", "a":[1,25e-1]}`))
	f.Add([]byte(`{"a":1,"\u0061":1}`), []byte("\"\xff\""))
	f.Add([]byte(`[1e999999999999999999999]`), []byte(`[10e999999999999999999998]`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, okX := againstJSONText(t, a)
		y, okY := againstJSONText(t, b)
		if !okX || !okY {
			return
		}
		for _, numbers := range []Numbers{Literal, Decimal} {
			p, err := referenceEncoding(a, numbers)
			require.NoError(t, err)
			q, err := referenceEncoding(b, numbers)
			require.NoError(t, err)
			require.Equal(t, string(p) == string(q), Equal(x, y, numbers))
			require.Equal(t, p, x.AppendEncoding(nil, numbers))
		}
		require.Equal(t, Equal(x, y, Literal), len(differences(x, y)) == 0)
	})
}

func againstJSONText(t *testing.T, doc []byte) (Node, bool) {
	tree, err := Parse(doc)
	var limit *LimitError
	if errors.As(err, &limit) || len(doc) > slowReference {
		return Node{}, false
	}
	require.Equal(t, err == nil, jsontext.Value(doc).IsValid(), "%q: %v", doc, err)
	if err != nil {
		var syntax *SyntaxError
		require.ErrorAs(t, err, &syntax)
		require.LessOrEqual(t, syntax.Offset, int64(len(doc)))
		require.GreaterOrEqual(t, syntax.Offset, int64(0))
		return Node{}, false
	}
	require.True(t, json.Valid(doc), "%q", doc)
	return tree.Root(), true
}

// slowReference is the length from which numbers are too long for the reference,
// whose math/big is quadratic.
const slowReference = 10_000

// FuzzEncoding checks that nothing is lost on the way to the encoding.
func FuzzEncoding(f *testing.F) {
	f.Add([]byte(`{"b":[true,null,"\n\u001f\""],"a":{"c":-0.0,"":[]}}`))
	f.Add([]byte(`"012345678901234567890123456789"`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		tree, err := Parse(doc)
		if err != nil {
			return
		}
		encoding := tree.Root().AppendEncoding(nil, Literal)
		decoded, err := decodeEncoding(encoding)
		require.NoError(t, err)
		require.Equal(t, string(tree.Root().AppendCanonical(nil)), string(decoded))
		again, err := Parse(decoded)
		require.NoError(t, err)
		require.Equal(t, encoding, again.Root().AppendEncoding(nil, Literal))
		require.True(t, Equal(tree.Root(), again.Root(), Literal))
		require.Equal(t, tree.Root().Sum(Decimal), again.Root().Sum(Decimal))

		normal, err := decodeEncoding(tree.Root().AppendEncoding(nil, Decimal))
		require.NoError(t, err)
		require.True(t, Equal(tree.Root(), parse(t, string(normal)), Decimal))
	})
}

// FuzzDecimal compares the normal form of a number with that of math/big.
func FuzzDecimal(f *testing.F) {
	for _, literal := range []string{"-120.0340e-05", "0.00", "1e999999999999999999", "10e-1000000000000000001"} {
		f.Add(literal)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		tree, err := Parse([]byte(literal))
		if err != nil || tree.Root().Kind() != Number || len(literal) > slowReference {
			return
		}
		raw := tree.Root().Raw()
		normal := AppendDecimal(nil, raw)
		assert.Equal(t, referenceDecimal(string(raw)), string(normal))
		assert.Equal(t, string(normal), string(AppendDecimal(nil, normal)), "the normal form is its own")
		if tree.nodes[0].flags&unplain == 0 {
			assert.Equal(t, string(raw), string(normal))
		}
	})
}

// FuzzOnePass checks that the digest without an index is the one with it, and
// that nothing is accepted without it that is refused with it.
func FuzzOnePass(f *testing.F) {
	f.Add([]byte(`{"b":[1,2.50],"\u0061":"\ud83c\udf4c","a":{"":null}} `))
	f.Add([]byte(`{"aaaaaaaa2":1,"aaaaaaaa1":{"b":true,"a":false},"a":"` + "0123456789012345678901234567890" + `"}`))
	f.Add([]byte(`[[],{},"",-0.10e+5,{"a":1,"a":1}]`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		streamed(t, string(doc))
	})
}
