// Package reason formats the error texts of servers and receivers as one printable line of
// bounded length, without parts of a request.
package reason

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Max bounds another's own words in an error, in bytes.
const Max = 200

const masked = "…"

var (
	// encoded is a run that may be a payload in base64 or hex.
	encoded = regexp.MustCompile(`[A-Za-z0-9+/_=%-]{40,}`)
	// maskedRun is masked words with nothing but punctuation between them.
	maskedRun = regexp.MustCompile(`…([^\s\pL\pN]*…)+`)
)

// reason is an error in words that may be shown.
type reason struct {
	text string
	err  error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.err }

// Of returns an error with the text of err, formatted as by New.
func Of(err error) error { return New(err, err.Error(), "") }

// New returns an error whose text is text as one printable line, and code, "" for none,
// which is kept where text is cut: at most Max bytes. Cause, whose text may hold a
// payload or a secret, is in its chain.
func New(cause error, text, code string) error {
	if code != "" {
		code = " (" + code + ")"
	}
	return &reason{line(text, Max-len(code)) + code, cause}
}

// line returns the first most bytes of text: valid UTF-8, without control characters,
// white space folded.
func line(text string, most int) string {
	// Longer texts are cut before the work on them: a target may send any amount.
	text = strings.ToValidUTF8(text[:min(len(text), 8*Max)], "")
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if len(text) <= most {
		return text
	}
	end := most - len(masked)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + masked
}

// Mask returns a target's text without repeated parts of a request: every word that is
// in a value of the document doc or in one of secrets, in upper or lower case, and long
// runs that may encode them. Names of members stay. The result is one line of at most
// Max bytes.
func Mask(text string, doc []byte, secrets ...string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 8*Max)], "")
	for _, secret := range secrets {
		if len(secret) >= 4 {
			text = strings.ReplaceAll(text, secret, masked)
		}
	}
	text = encoded.ReplaceAllString(text, masked)
	// Of the document only the words of text are looked for: it may be large.
	hidden := map[string]bool{}
	words(text, func(word string) { hidden[strings.ToLower(word)] = false })
	hide := func(word string) {
		if word = strings.ToLower(word); len(hidden) > 0 {
			if _, said := hidden[word]; said {
				hidden[word] = true
			}
		}
	}
	for _, secret := range secrets {
		words(secret, hide)
	}
	leaves(gjson.ParseBytes(doc), func(value string) { words(value, hide) })

	var b strings.Builder
	at := 0
	words(text, func(word string) {
		start := at + strings.Index(text[at:], word)
		b.WriteString(text[at:start])
		at = start + len(word)
		if hidden[strings.ToLower(word)] {
			word = masked
		}
		b.WriteString(word)
	})
	b.WriteString(text[at:])
	return line(maskedRun.ReplaceAllString(b.String(), masked), Max)
}

// words calls f with each run of letters and digits.
func words(s string, f func(string)) {
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		f(word)
	}
}

// leaves calls f with each text and number in a JSON value.
func leaves(v gjson.Result, f func(string)) {
	switch {
	case v.IsObject() || v.IsArray():
		v.ForEach(func(_, member gjson.Result) bool {
			leaves(member, f)
			return true
		})
	case v.Type == gjson.String:
		f(v.Str)
	case v.Type == gjson.Number:
		f(v.Raw)
	}
}
