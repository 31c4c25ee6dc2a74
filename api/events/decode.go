package events

import (
	"errors"
	"mime"
	"net/http"
	"strings"
)

// form is how a request holds its events.
type form int

const (
	unknown    form = iota
	one             // one JSON value
	array           // a JSON array of events
	lines           // one JSON value per line
	binary          // one CloudEvent, its attributes in headers
	structured      // one CloudEvent as JSON
	batched         // a JSON array of CloudEvents
)

// batch reports whether requests of the form hold any number of events.
func (f form) batch() bool { return f == array || f == lines || f == batched }

// formOf tells the form of a request to the route of single events, or of batches.
func formOf(h http.Header, batch bool) form {
	text := h.Get("Content-Type")
	cloud := h.Get("Ce-Specversion") != ""
	if text == "" && cloud && !batch {
		return binary
	}
	kind, params, err := mime.ParseMediaType(text)
	if err != nil || !strings.EqualFold(params["charset"], "utf-8") && params["charset"] != "" {
		return unknown
	}
	switch {
	case kind == "application/x-ndjson":
		return lines
	case kind == "application/cloudevents-batch+json":
		return batched
	case batch && kind == "application/json":
		return array
	case batch:
		return unknown
	case kind == "application/cloudevents+json":
		return structured
	case cloud && isJSON(kind):
		return binary
	case kind == "application/json":
		return one
	}
	return unknown
}

func isJSON(kind string) bool {
	return kind == "application/json" || kind == "text/json" || strings.HasSuffix(kind, "+json")
}

// KeyHeader is the name of the header of
// draft-ietf-httpapi-idempotency-key-header.
const KeyHeader = "Idempotency-Key"

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

var errKey = errors.New(`Idempotency-Key must be one string of 1 to 255 visible ASCII characters, in quotes or bare; a bare one has no quotes, commas and backslashes`)

// keyOf returns the idempotency key of a request, or "". The draft wants a String of RFC 9651;
// many clients send the text without quotes, which names the same key.
func keyOf(h http.Header) (string, error) {
	values := h.Values(KeyHeader)
	switch len(values) {
	case 0:
		return "", nil
	case 1:
		return parseKey(values[0])
	}
	return "", errKey
}

func parseKey(value string) (string, error) {
	value = strings.Trim(value, " \t")
	key := value
	if strings.HasPrefix(value, `"`) {
		var b strings.Builder
		rest, closed := value[1:], false
		for i := 0; i < len(rest) && !closed; i++ {
			switch c := rest[i]; c {
			case '"':
				if i != len(rest)-1 {
					return "", errKey // parameters, or a list
				}
				closed = true
			case '\\':
				if i++; i == len(rest) || rest[i] != '"' && rest[i] != '\\' {
					return "", errKey
				}
				b.WriteByte(rest[i])
			default:
				b.WriteByte(c)
			}
		}
		if !closed {
			return "", errKey
		}
		key = b.String()
	} else if strings.ContainsAny(value, "\",\\") {
		return "", errKey
	}
	if len(key) < 1 || len(key) > maxKey {
		return "", errKey
	}
	for i := range len(key) {
		if key[i] <= ' ' || key[i] > '~' {
			return "", errKey
		}
	}
	return key, nil
}
