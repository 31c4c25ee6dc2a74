package sqlsink

import (
	"encoding/json"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/config"
)

// Differing returns the names of the columns whose held and wanted values differ. Values are
// JSON, nil for NULL. Numbers are compared by value and objects without regard to order. A
// text column may hold another part of the document than a string, as JSON: the spelling of
// that does not count.
func Differing(columns config.Columns, doc []byte, held, wanted []*string) []string {
	var names []string
	for i, c := range columns {
		part := gjson.ParseBytes(doc)
		if c.Path != "" {
			part = part.Get(c.Path)
		}
		if !sameText(part, held[i], wanted[i]) {
			names = append(names, c.Name)
		}
	}
	return names
}

func sameText(doc gjson.Result, held, wanted *string) bool {
	if held == nil || wanted == nil {
		return held == wanted
	}
	if *held == *wanted {
		return true
	}
	left, ok := parse(*held)
	right, fine := parse(*wanted)
	return ok && fine && sameValue(doc, left, right)
}

func parse(text string) (value any, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	err := d.Decode(&value)
	return value, err == nil && !d.More()
}

// sameValue compares values that come from a part of the document.
func sameValue(doc gjson.Result, held, wanted any) bool {
	switch wanted := wanted.(type) {
	case json.Number:
		held, ok := held.(json.Number)
		return ok && sameJSON(string(held), string(wanted))
	case string:
		held, ok := held.(string)
		return ok && (held == wanted || doc.Type != gjson.String && sameJSON(held, wanted))
	case []any:
		held, ok := held.([]any)
		if !ok || len(held) != len(wanted) {
			return false
		}
		items := doc.Array()
		for i := range wanted {
			item := gjson.Result{}
			if doc.IsArray() && i < len(items) {
				item = items[i]
			}
			if !sameValue(item, held[i], wanted[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		held, ok := held.(map[string]any)
		if !ok || len(held) != len(wanted) {
			return false
		}
		members := doc.Map()
		for name := range wanted {
			if other, ok := held[name]; !ok || !sameValue(members[name], other, wanted[name]) {
				return false
			}
		}
		return true
	}
	return held == wanted // true, false, null
}

func sameJSON(a, b string) bool {
	left, err := canonicaltree.Sum([]byte(a), canonicaltree.Decimal)
	if err != nil {
		return a == b
	}
	right, err := canonicaltree.Sum([]byte(b), canonicaltree.Decimal)
	return err == nil && left == right
}
