// Package openapi is the description of the API for machines: an OpenAPI 3.1
// document, written by hand in openapi.yaml and served as JSON. A test sends
// requests to a real process and checks every exchange against it, and that
// document and server have the same routes.
package openapi

import (
	_ "embed"
	"net/http"

	"github.com/goccy/go-yaml"
)

//go:embed openapi.yaml
var document []byte

// JSON gives the document. It is the same at every call.
func JSON() ([]byte, error) { return yaml.YAMLToJSON(document) }

// Pattern is where the document is served.
const Pattern = "GET /v1/openapi.json"

// Handler serves the document.
func Handler() (http.Handler, error) {
	text, err := JSON()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	}), nil
}
