// Package openapi is the description of the API for machines: an OpenAPI 3.1
// document, written by hand in openapi.yaml and served as JSON. A test sends
// requests to a real process and checks every exchange against it, and that
// document and server have the same routes.
package openapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"net/http"

	"go.yaml.in/yaml/v4"
)

//go:embed openapi.yaml
var document []byte

// JSON returns the document. It is the same at every call.
func JSON() ([]byte, error) {
	var v any
	if err := yaml.Load(document, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Pattern is where the document is served.
const Pattern = "GET /v1/openapi.json"

// written is the server's address in the document.
const written = `"http://127.0.0.1:9601"`

// Handler serves the document, with the host of the request as the server's address.
func Handler() (http.Handler, error) {
	text, err := JSON()
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		address, err := json.Marshal(scheme + "://" + r.Host)
		if err != nil {
			address = []byte(written)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Vary", "Host")
		_, _ = w.Write(bytes.Replace(text, []byte(written), address, 1))
	}), nil
}
