package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/bytedance/sonic"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gowebpki/jcs"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/tidwall/gjson"
	"github.com/valyala/fastjson"
)

// contender is one way to a digest that does not depend on the order of members.
type contender struct {
	name string
	run  func(doc []byte) ([32]byte, error)
	// same: the digest is Weir's, because the encoding is the same.
	same bool
}

// contenders returns fresh ones, the first four in the order of main.go: their
// buffers are their own.
func contenders() []contender {
	return []contender{
		{"Weir", func(doc []byte) ([32]byte, error) { return canonicaltree.Sum(doc, canonicaltree.Literal) }, true},
		{"Weir by the index", treeSum, true},
		{"SHA-256 alone", func(doc []byte) ([32]byte, error) { return sha256.Sum256(doc), nil }, false},
		{"scan alone", (&scanner{}).run, false},
		{"jsontext", jsontextSum(), false},
		{"fastjson walk", fastjsonSum(), true},
		{"gjson walk", gjsonSum(), true},
		{"sonic", sonicSum(), false},
		{"encoding/json", encodingJSONSum, false},
		{"gowebpki/jcs", jcsSum, false},
	}
}

func treeSum(doc []byte) ([32]byte, error) {
	tree, err := canonicaltree.Parse(doc)
	if err != nil {
		return [32]byte{}, err
	}
	defer tree.Release()
	return tree.Root().Sum(canonicaltree.Literal), nil
}

// jsontextSum canonicalises by RFC 8785.
func jsontextSum() func([]byte) ([32]byte, error) {
	var buffer jsontext.Value
	return func(doc []byte) ([32]byte, error) {
		buffer = append(buffer[:0], doc...)
		if err := buffer.Canonicalize(); err != nil {
			return [32]byte{}, err
		}
		return sha256.Sum256(buffer), nil
	}
}

// pair is a member while it is sorted.
type pair[V any] struct {
	name  string
	value V
}

func sortPairs[V any](pairs []pair[V]) {
	slices.SortFunc(pairs, func(a, b pair[V]) int { return strings.Compare(a.name, b.name) })
}

// fastjsonSum walks the parsed values, members sorted, and writes the encoding
// of Weir's hash.
func fastjsonSum() func([]byte) ([32]byte, error) {
	var parser fastjson.Parser
	var encoding, literal []byte
	var stack []pair[*fastjson.Value]
	var walk func(v *fastjson.Value) error
	walk = func(v *fastjson.Value) error {
		switch v.Type() {
		case fastjson.TypeNull:
			encoding = append(encoding, 0xF6)
		case fastjson.TypeFalse:
			encoding = append(encoding, 0xF4)
		case fastjson.TypeTrue:
			encoding = append(encoding, 0xF5)
		case fastjson.TypeNumber:
			literal = v.MarshalTo(literal[:0])
			encoding = append(appendHead(encoding, 2, len(literal)), literal...)
		case fastjson.TypeString:
			text := v.GetStringBytes()
			encoding = append(appendHead(encoding, 3, len(text)), text...)
		case fastjson.TypeArray:
			elements := v.GetArray()
			encoding = appendHead(encoding, 4, len(elements))
			for _, e := range elements {
				if err := walk(e); err != nil {
					return err
				}
			}
		case fastjson.TypeObject:
			from := len(stack)
			v.GetObject().Visit(func(name []byte, v *fastjson.Value) {
				stack = append(stack, pair[*fastjson.Value]{unsafeString(name), v})
			})
			members := stack[from:]
			sortPairs(members)
			encoding = appendHead(encoding, 5, len(members))
			for _, m := range members {
				encoding = append(appendHead(encoding, 3, len(m.name)), m.name...)
				if err := walk(m.value); err != nil {
					return err
				}
			}
			stack = stack[:from]
		default:
			return errors.New("unknown type")
		}
		return nil
	}
	return func(doc []byte) ([32]byte, error) {
		v, err := parser.ParseBytes(doc)
		if err != nil {
			return [32]byte{}, err
		}
		encoding, stack = encoding[:0], stack[:0]
		if err := walk(v); err != nil {
			return [32]byte{}, err
		}
		return sha256.Sum256(encoding), nil
	}
}

// gjsonSum is fastjsonSum by gjson.
func gjsonSum() func([]byte) ([32]byte, error) {
	var encoding []byte
	var stack []pair[gjson.Result]
	var walk func(v gjson.Result)
	walk = func(v gjson.Result) {
		switch {
		case v.Type == gjson.Null:
			encoding = append(encoding, 0xF6)
		case v.Type == gjson.False:
			encoding = append(encoding, 0xF4)
		case v.Type == gjson.True:
			encoding = append(encoding, 0xF5)
		case v.Type == gjson.Number:
			encoding = append(appendHead(encoding, 2, len(v.Raw)), v.Raw...)
		case v.Type == gjson.String:
			encoding = append(appendHead(encoding, 3, len(v.Str)), v.Str...)
		default:
			from := len(stack)
			v.ForEach(func(name, v gjson.Result) bool {
				stack = append(stack, pair[gjson.Result]{name.Str, v})
				return true
			})
			if v.IsObject() {
				sortPairs(stack[from:])
				encoding = appendHead(encoding, 5, len(stack)-from)
			} else {
				encoding = appendHead(encoding, 4, len(stack)-from)
			}
			for k := from; k < len(stack); k++ {
				if m := stack[k]; v.IsObject() {
					encoding = append(appendHead(encoding, 3, len(m.name)), m.name...)
				}
				walk(stack[k].value)
			}
			stack = stack[:from]
		}
	}
	return func(doc []byte) ([32]byte, error) {
		if !gjson.ValidBytes(doc) {
			return [32]byte{}, errors.New("invalid")
		}
		encoding, stack = encoding[:0], stack[:0]
		walk(gjson.ParseBytes(doc))
		return sha256.Sum256(encoding), nil
	}
}

// sonicSum reads into interfaces and writes them with sorted members.
func sonicSum() func([]byte) ([32]byte, error) {
	api := sonic.Config{UseNumber: true, SortMapKeys: true, ValidateString: true}.Froze()
	return func(doc []byte) ([32]byte, error) {
		var v any
		if err := api.Unmarshal(doc, &v); err != nil {
			return [32]byte{}, err
		}
		text, err := api.Marshal(v)
		return sha256.Sum256(text), err
	}
}

func encodingJSONSum(doc []byte) ([32]byte, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return [32]byte{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return [32]byte{}, errors.New("trailing bytes")
	}
	text, err := json.Marshal(v)
	return sha256.Sum256(text), err
}

func jcsSum(doc []byte) ([32]byte, error) {
	text, err := jcs.Transform(doc)
	return sha256.Sum256(text), err
}
