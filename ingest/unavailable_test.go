package ingest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/ingest"
	"github.com/stretchr/testify/require"
)

// The forms that Debezium's PostgreSQL connector uses for its placeholder, by the type of the
// column (UnchangedToastedPlaceholder, PostgresValueConverter), and what resembles them.
func TestUnavailableValueInEveryForm(t *testing.T) {
	list := func(of func(b byte) string, placeholder string) string {
		var elements []string
		for _, b := range []byte(placeholder) {
			elements = append(elements, of(b))
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	b64 := func(b ...byte) string { return base64.StdEncoding.EncodeToString(b) }
	for _, placeholder := range []string{ingest.DebeziumUnavailable, `<"none">`, "hex:6e6f6e65ff"} {
		p := placeholder
		if p == "hex:6e6f6e65ff" {
			p = "none\xff"
		}
		text := strconv.Quote(strings.ToValidUTF8(p, "\ufffd"))
		hstore := fmt.Sprintf("{%s:%s}", text, text)
		forms := map[string]string{
			"text":                  text,
			"text, escaped":         `"\u` + fmt.Sprintf("%04x", p[0]) + text[2:],
			"text[]":                "[" + text + "]",
			"bytea":                 fmt.Sprintf("%q", b64([]byte(p)...)),
			"bytea, base64 for URL": fmt.Sprintf("%q", base64.URLEncoding.EncodeToString([]byte(p))),
			"bytea, hex":            fmt.Sprintf("%q", fmt.Sprintf("%x", p)),
			"bytea[]":               fmt.Sprintf("[%q]", b64([]byte(p)...)),
			"hstore":                hstore,
			"hstore as text":        strconv.Quote(hstore),
			"integer[]":             list(func(b byte) string { return fmt.Sprint(int8(b)) }, p),
			"float8[]":              list(func(b byte) string { return fmt.Sprintf("%d.0", int8(b)) }, p),
			"numeric(10,2)[]":       list(func(b byte) string { return fmt.Sprintf("%q", b64(b)) }, p),
			"numeric(10,2)[], text": list(func(b byte) string { return fmt.Sprintf("%.2f", float64(int8(b))/100) }, p),
			"numeric[]":             list(func(b byte) string { return fmt.Sprintf(`{"scale":0,"value":%q}`, b64(b)) }, p),
			"boolean[]":             list(func(byte) string { return "true" }, p),
		}
		if placeholder == ingest.DebeziumUnavailable {
			forms["uuid[]"] = `["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]` // java.util.UUID.nameUUIDFromBytes
		}
		for _, format := range []ingest.Format{ingest.Debezium, ingest.JSON} {
			become := func(column string) string {
				value := `{"id":1,"c":` + column + `}`
				if format == ingest.Debezium {
					value = `{"op":"u","before":null,"after":` + value + `}`
				}
				c := formatCase{Format: format, Entity: "id", Unavailable: placeholder, Value: json.RawMessage(value)}
				record, letter := take(c.shape(t), c.message(t))
				return outcomeOf(record, letter)
			}
			for name, form := range forms {
				require.Contains(t, become(form), "\nunchanged c\n", "%s of %s: %s", name, placeholder, form)
			}
			for _, other := range []string{
				`"I met ` + text[1:], `[` + text + `,"a"]`, `{"a":` + text + `}`, `[[` + text + `]]`,
				list(func(b byte) string { return fmt.Sprint(int8(b)) }, p[1:]), list(func(b byte) string { return fmt.Sprint(int8(b) + 1) }, p),
				list(func(byte) string { return "null" }, p), "true", "[true]", "[]", "{}", "null", "95", `""`,
			} {
				require.Contains(t, become(other), "upsert 1\n{", other)
			}
		}
	}
}
