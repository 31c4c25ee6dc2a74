package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// maxJSON bounds what is shown of a document, in bytes.
const maxJSON = 64 << 10

// functions are what templates call.
var functions = template.FuncMap{
	"sections": func() any { return sections },
	"number":   func(f float64) string { return humanize.Comma(int64(f)) },
	"comma":    func(n int64) string { return humanize.Comma(n) },
	"rate": func(r rate) string {
		switch {
		case !r.Known:
			return "–"
		case r.PerSecond > 0 && r.PerSecond < 10:
			return fmt.Sprintf("%.1f", r.PerSecond)
		}
		return humanize.Comma(int64(r.PerSecond + 0.5))
	},
	"percent": func(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) },
	"age":     func(d time.Duration) string { return d.Round(time.Millisecond).String() },
	"time":    func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"bytes":   func(n int) string { return humanize.IBytes(uint64(n)) },
	"json":    pretty,
	"id":      func(parts ...string) string { return strings.Join(parts, "-") },
	"deref": func(n *int64) string {
		if n == nil {
			return "–"
		}
		return humanize.Comma(*n)
	},
}

// pretty breaks a JSON text into lines, and cuts it when it is long.
func pretty(text []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, text, "", "  ") != nil {
		b.Reset()
		b.Write(text)
	}
	if b.Len() > maxJSON {
		return strings.ToValidUTF8(b.String()[:maxJSON], "") + "\n… (cut)"
	}
	return b.String()
}
