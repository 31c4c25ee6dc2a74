// Package problem writes errors of the API as RFC 9457 has them.
package problem

import (
	"encoding/json"
	"maps"
	"net/http"
)

// Kind returns the type of a problem that its status alone does not tell:
// "urn:weir:problem:" and the word.
func Kind(word string) string { return "urn:weir:problem:" + word }

// Problem is one error as its caller sees it. Nothing in it comes from an
// event's content, and no secret.
type Problem struct {
	// Type is a URI, see Kind; empty means "about:blank".
	Type string
	// Title says what Type means. Defaults to the status's text.
	Title string
	// Status of HTTP.
	Status int
	// Detail is the fault of this request, and the cure.
	Detail string
	// Extensions are more members; names of standard members have no effect.
	Extensions map[string]any
}

// MarshalJSON returns the object of RFC 9457, section 3.
func (p Problem) MarshalJSON() ([]byte, error) {
	all := map[string]any{}
	maps.Copy(all, p.Extensions)
	all["type"], all["title"], all["status"] = p.Type, p.Title, p.Status
	if p.Type == "" {
		all["type"] = "about:blank"
	}
	if p.Title == "" {
		all["title"] = http.StatusText(p.Status)
	}
	delete(all, "detail")
	if p.Detail != "" {
		all["detail"] = p.Detail
	}
	return json.Marshal(all)
}

// Write answers a request with a problem. Headers that go with the status, such
// as Retry-After, are set by the caller before.
func Write(w http.ResponseWriter, p Problem) {
	body, err := json.Marshal(p)
	if err != nil { // an extension of a type that JSON has not
		body, _ = json.Marshal(Problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail})
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}
