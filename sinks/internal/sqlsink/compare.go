package sqlsink

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// Differing returns the names of the columns whose held and wanted values differ. Values are
// JSON, nil for NULL. Numbers are compared by value and objects without regard to order. A
// text column may hold another part of the document than a string, as JSON: the spelling of
// that does not count.
func Differing(columns config.Columns, e sinks.Expected, held, wanted []*string) []string {
	var names []string
	doc := gjson.ParseBytes(e.Doc)
	for i, c := range columns {
		part := doc
		if c.Path != "" {
			part = part.Get(c.Path)
		}
		if !sameText(part, held[i], wanted[i]) && (e.Content == nil || !sameContent(e, doc, c.Path, part, held[i], wanted[i])) {
			names = append(names, c.Name)
		}
	}
	return names
}

// sameContent compares the content of the values, each placed alone in a document.
func sameContent(e sinks.Expected, doc gjson.Result, path string, part gjson.Result, held, wanted *string) bool {
	content := func(value *string) (string, error) {
		text := "null"
		if value != nil {
			text = inDocument(part, gjson.Parse(*value))
		}
		return e.Content([]byte(around(doc, path, text)))
	}
	left, err := content(held)
	right, other := content(wanted)
	return err == nil && other == nil && left == right
}

// inDocument returns a column's value as the document has it: a text may hold other JSON.
func inDocument(part, value gjson.Result) string {
	switch {
	case value.Type == gjson.String && part.Exists() && part.Type != gjson.String && gjson.Valid(value.Str):
		return value.Str
	case value.IsArray() && part.IsArray():
		items, parts := value.Array(), part.Array()
		texts := make([]string, len(items))
		for i, item := range items {
			one := gjson.Result{}
			if len(parts) > 0 {
				one = parts[min(i, len(parts)-1)]
			}
			texts[i] = inDocument(one, item)
		}
		return "[" + strings.Join(texts, ",") + "]"
	}
	return value.Raw
}

// around returns a document with only a value at a path. doc shows which parts are arrays.
func around(doc gjson.Result, path, value string) string {
	if path == "" {
		return value
	}
	end := 0
	for end < len(path) && path[end] != '.' {
		if path[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(path))
	inner := around(doc.Get(path[:end]), strings.TrimPrefix(path[end:], "."), value)
	if doc.IsArray() {
		return "[" + inner + "]"
	}
	name, _ := json.Marshal(escaped.ReplaceAllString(path[:end], "$1")) // a string never fails
	return "{" + string(name) + ":" + inner + "}"
}

// escaped is a character of a path behind a backslash.
var escaped = regexp.MustCompile(`\\(.)`)

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
