package events

import (
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
