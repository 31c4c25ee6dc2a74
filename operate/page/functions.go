package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

// maxJSON bounds the shown part of a document, in bytes.
const maxJSON = 64 << 10

// functions are what templates call.
var functions = template.FuncMap{
	"sections": func() []section { return sections },
	"number":   comma,
	"known":    func(is bool, n float64) string { return orDash(is, comma(n)) },
	"comma":    func(n int64) string { return humanize.Comma(n) },
	"count": func(n int64, one, many string) string {
		return humanize.Comma(n) + " " + english.PluralWord(int(n), one, many)
	},
	"join":    strings.Join,
	"rate":    rateText,
	"percent": func(f float64) string { return tenths(100*f) + " %" },
	"age":     func(d time.Duration) string { return d.Round(time.Millisecond).String() },
	"when":    when,
	"since":   since,
	"time":    func(t time.Time) string { return t.UTC().Format(time.DateTime) },
	"clock":   func(t time.Time) string { return t.UTC().Format(time.TimeOnly) },
	"unix":    func(t time.Time) int64 { return t.Unix() },
	"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"bytes":   func(n int) string { return humanize.IBytes(uint64(n)) },
	"json":    pretty,
	"brief":   func(text json.RawMessage) string { return cutText(string(text), maxBrief) },
	"state":   stateWords,
	"level":   levelClass,
	"verdict": verdictClass,
	"service": servicePath,
	"words":   breakable,
	"deref": func(n *int64) string {
		if n == nil {
			return "–"
		}
		return humanize.Comma(*n)
	},
}

func comma(f float64) string { return humanize.Comma(int64(f + 0.5)) }

// orDash formats a number, or a dash while it is unknown.
func orDash(known bool, number string) string {
	if known {
		return number
	}
	return "–"
}

// rateText formats a rate, with one decimal place if it is low.
func rateText(r snapshot.Rate) string {
	if r.PerSecond > 0 && r.PerSecond < 10 {
		return orDash(r.Known, tenths(r.PerSecond))
	}
	return orDash(r.Known, comma(r.PerSecond))
}

// tenths has one digit after the point. A positive number never reads as 0.
func tenths(f float64) string {
	if f > 0 && f < 0.05 {
		return "<0.1"
	}
	return fmt.Sprintf("%.1f", f)
}

// when formats how long ago something was, with the time as its title. The script updates it on
// an open page.
func when(t time.Time) template.HTML {
	return timeElement(t, fmt.Sprintf(` data-ago="%d"`, int(time.Since(t).Seconds())), humanize.Time(t))
}

// since says for how long something lasts.
func since(t time.Time) template.HTML {
	now := time.Now()
	return timeElement(t, "", strings.TrimSpace(humanize.RelTime(t, now.Add(time.Second), "", "")))
}

func timeElement(t time.Time, data, text string) template.HTML {
	t = t.UTC()
	// #nosec G203 -- nothing of it is anybody's text
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC"%s>%s</time>`, t.Format(time.RFC3339), t.Format(time.DateTime), data, text))
}

// maxBrief bounds a value that is shown in a row, in bytes.
const maxBrief = 200

func cutText(s string, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// place names a line of a file. The page does not show folders of the machine.
func place(pos config.Position) string {
	return fmt.Sprintf("%s:%d", filepath.Base(pos.File), pos.Line)
}

// wholeName is how many characters of a name fit in one line.
const wholeName = 24

// breakable is a name that may be broken behind its punctuation if it is long, and
// nowhere else.
func breakable(name string) template.HTML {
	escaped := breaks.Replace(template.HTMLEscapeString(name))
	if utf8.RuneCountInString(name) <= wholeName && !strings.ContainsFunc(name, unicode.IsSpace) {
		return template.HTML(`<span class="whole">` + escaped + `</span>`) // #nosec G203 -- it is escaped
	}
	return template.HTML(escaped) // #nosec G203 -- it is escaped
}

var breaks = strings.NewReplacer("/", "/<wbr>", "@", "<wbr>@", "_", "_<wbr>", ".", ".<wbr>", ",", ",<wbr>", ":", ":<wbr>", "-", "-<wbr>")

// query returns the parameters that have a value, as part of an address.
func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" && pairs[i+1] != "0" { //nolint:gosec // pairs are even
			v.Set(pairs[i], pairs[i+1]) //nolint:gosec // the same
		}
	}
	return v.Encode()
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
