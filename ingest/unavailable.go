package ingest

import (
	"bytes"
	"crypto/md5" //nolint:gosec // no secret: Debezium's own rule
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
)

// DebeziumUnavailable is the default of Debezium's unavailable.value.placeholder.
const DebeziumUnavailable = "__debezium_unavailable_value"

// Unavailable recognises the value that a connector writes for a column that an update
// left unchanged and the database did not log, in the forms that the column's type takes:
//
//	text, json, hex, xml          the placeholder
//	bytea                         its bytes, in Base64 or hex
//	uuid                          the name-based UUID (version 3) of its bytes
//	hstore                        an object of it and itself, or that object as text
//	text[], json[], uuid[]        a list of the one form of the element
//	int[], float[], date[]        a list of its bytes, as signed numbers
//	numeric[]                     the same in Base64, with or without a scale, or as numbers
//	boolean[]                     a list of true, one for each byte
//
// A nil Unavailable recognises nothing.
type Unavailable struct {
	bytes   []byte
	text    string
	strings map[string]bool // the forms that are one text

	shortest, longest int // of strings, in bytes
}

// NewUnavailable returns one for a placeholder as Debezium is configured with: a text, or
// after "hex:" bytes in hexadecimal. An empty one returns nil.
func NewUnavailable(placeholder string) (*Unavailable, error) {
	if placeholder == "" {
		return nil, nil //nolint:nilnil // the documented value
	}
	u := &Unavailable{bytes: []byte(placeholder), text: placeholder}
	if digits, ok := strings.CutPrefix(placeholder, "hex:"); ok {
		var err error
		if u.bytes, err = hex.DecodeString(digits); err != nil || len(u.bytes) == 0 {
			return nil, fmt.Errorf("%q has no bytes in hexadecimal behind its prefix", placeholder)
		}
		u.text = strings.ToValidUTF8(string(u.bytes), "\ufffd")
	}
	var hstore strings.Builder
	e := json.NewEncoder(&hstore)
	e.SetEscapeHTML(false)
	_ = e.Encode(map[string]string{u.text: u.text}) // strings have a form
	u.strings = map[string]bool{
		u.text:                                     true,
		strings.TrimSpace(hstore.String()):         true,
		hex.EncodeToString(u.bytes):                true,
		`\x` + hex.EncodeToString(u.bytes):         true,
		base64.StdEncoding.EncodeToString(u.bytes): true,
		base64.URLEncoding.EncodeToString(u.bytes): true,
		nameUUID(u.bytes):                          true,
	}
	u.shortest = len(placeholder)
	for form := range u.strings {
		u.shortest, u.longest = min(u.shortest, len(form)), max(u.longest, len(form))
	}
	return u, nil
}

// nameUUID is java.util.UUID.nameUUIDFromBytes: version 3 without a name space.
func nameUUID(name []byte) string {
	id := uuid.UUID(md5.Sum(name)) //nolint:gosec // no secret: Debezium's own rule
	id[6], id[8] = id[6]&0x0f|0x30, id[8]&0x3f|0x80
	return id.String()
}

// in returns the columns of a row that are not available.
func (u *Unavailable) in(row canonicaltree.Node) (columns []string) {
	if u == nil || row.Kind() != canonicaltree.Object {
		return nil
	}
	for column := range row.Children() {
		if u.is(column) {
			columns = append(columns, string(column.Name()))
		}
	}
	return columns
}

// is reports whether a column has the placeholder in one of its forms.
func (u *Unavailable) is(v canonicaltree.Node) bool {
	switch v.Kind() {
	case canonicaltree.String:
		return u.isText(v)
	case canonicaltree.Object:
		return v.Len() == 1 && textOf(v.Get(u.text)) == u.text
	case canonicaltree.Array:
		if v.Len() == 1 && v.At(0).Kind() == canonicaltree.String {
			return u.isText(v.At(0))
		}
		return v.Len() == len(u.bytes) && u.isList(v)
	}
	return false
}

// isText reports whether a text is the placeholder. It does not unescape a text whose length
// rules it out: a character takes one to six bytes.
func (u *Unavailable) isText(v canonicaltree.Node) bool {
	n := len(v.Raw()) - len(`""`)
	return n >= u.shortest && n <= 6*u.longest && u.strings[textOf(v)]
}

// isList reports whether a list has the placeholder's bytes, one an element.
func (u *Unavailable) isList(list canonicaltree.Node) bool {
	for i, v := range list.Elements() {
		if !isByte(v, u.bytes[i]) {
			return false
		}
	}
	return true
}

// isByte reports whether a value is a byte of the placeholder, in an array's element type.
func isByte(v canonicaltree.Node, b byte) bool {
	encoded := base64.StdEncoding.EncodeToString([]byte{b})
	switch v.Kind() {
	case canonicaltree.Number:
		// Of numeric(p,s) the byte is the unscaled value: 0.95 and 9.5 are 95, too.
		n, err := strconv.ParseFloat(string(v.Raw()), 64)
		digits := strings.TrimLeft(strings.Replace(string(v.Raw()), ".", "", 1), "-0")
		return err == nil && (n == float64(int8(b)) || bytes.ContainsRune(v.Raw(), '.') && digits == strings.TrimLeft(strconv.Itoa(int(int8(b))), "-"))
	case canonicaltree.True:
		return b != 0
	case canonicaltree.False:
		return b == 0
	case canonicaltree.String:
		return textOf(v) == encoded
	case canonicaltree.Object: // VariableScaleDecimal
		return v.Len() == 2 && v.Get("scale").Exists() && textOf(v.Get("value")) == encoded
	}
	return false
}

// textOf returns the unescaped content of a string, empty for anything else.
func textOf(v canonicaltree.Node) string {
	text, _ := v.Text()
	return text
}
