package events

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/ingest"
)

// ceIdentity is the metadata entry with source and id of a CloudEvent together.
// No attribute has a name like this: theirs are lower-case letters and digits.
const ceIdentity = "ce_source id"

// maxAttributes bounds the attributes of one CloudEvent.
const maxAttributes = 100

// leastValues are what an event in base64 may have, however short it is.
const leastValues = 64

func invalidEvent(format string, args ...any) error {
	return &ingest.Refusal{Code: "bad_cloudevent", Reason: fmt.Sprintf(format, args...)}
}

// specVersion is the version of CloudEvents that is read.
const specVersion = "1.0"

// binaryEvent reads the CloudEvent of a request whose headers hold its
// attributes (HTTP Protocol Binding 1.0.2, section 3.1).
func binaryEvent(h http.Header, body []byte) (value []byte, meta message.Metadata, err error) {
	attributes := map[string]string{}
	if kind := h.Get("Content-Type"); kind != "" {
		attributes["datacontenttype"] = kind
	}
	for name, values := range h {
		attribute, ok := strings.CutPrefix(name, "Ce-")
		if !ok {
			continue
		}
		attribute = strings.ToLower(attribute)
		if len(values) != 1 || !attributeName(attribute) {
			return nil, nil, invalidEvent("the headers have a CloudEvents attribute twice, or one whose name is not of letters and digits")
		}
		if attribute == "data" || attribute == "datacontenttype" {
			return nil, nil, invalidEvent("the body is the data, and Content-Type its type: they are no headers of their own")
		}
		if attributes[attribute], err = headerText(values[0]); err != nil {
			return nil, nil, err
		}
	}
	return contentOf(attributes, body)
}

// headerText decodes the value of a header as section 3.1.3.2 of the binding
// says: quotes first, then one round of percent-decoding. A percent sign that
// begins no code is literal.
func headerText(s string) (string, error) {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		var b strings.Builder
		for i := 1; i < len(s)-1; i++ {
			if s[i] == '\\' && i+1 < len(s)-1 {
				i++
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	if strings.Contains(s, "%") {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if c, err := hex.DecodeString(s[min(i+1, len(s)):min(i+3, len(s))]); s[i] == '%' && err == nil && len(c) == 1 {
				b.WriteByte(c[0])
				i += 2
				continue
			}
			b.WriteByte(s[i])
		}
		s = b.String()
	}
	switch {
	case !utf8.ValidString(s):
		return "", invalidEvent("the header of an attribute is not UTF-8; if the client writes Latin-1, let it percent-encode what is not ASCII, " +
			"as the HTTP binding says, or send application/cloudevents+json")
	case strings.ContainsRune(s, 0):
		return "", invalidEvent("an attribute holds a NUL")
	}
	return s, nil
}

// structuredEvent reads a CloudEvent from its JSON form (JSON Event Format 1.0.2). The
// member data is a JSON value, with any JSON type (section 3.1).
func structuredEvent(text []byte) (value []byte, meta message.Metadata, err error) {
	tree, err := canonicaltree.Parse(text)
	if err != nil {
		return nil, nil, err
	}
	defer tree.Release()
	root := tree.Root()
	if root.Kind() != canonicaltree.Object {
		return nil, nil, invalidEvent("the event is no JSON object")
	}
	attributes := map[string]string{}
	for name, n := range root.Members() {
		switch {
		case name == "data" || name == "data_base64":
		case n.Kind() == canonicaltree.Null && attributeName(name): // as if it were absent
		default:
			if attributes[name], err = attributeText(name, n); err != nil {
				return nil, nil, err
			}
		}
	}
	data, encoded := root.Get("data"), root.Get("data_base64")
	switch {
	case data.Exists() && encoded.Exists():
		return nil, nil, invalidEvent("the event has both data and data_base64")
	case data.Exists():
		value = bytes.Clone(data.Raw())
	case encoded.Exists():
		base, ok := encoded.Text()
		if value, err = base64.StdEncoding.DecodeString(base); err != nil || !ok {
			return nil, nil, invalidEvent("data_base64 is no string in base64")
		}
		// Admission could not count the encoded values.
		if n, _ := canonicaltree.Values(value); n > max(leastValues, len(text)/api.BytesPerValue) {
			return nil, nil, invalidEvent("data_base64 has more than a value per %d bytes; send it as data", api.BytesPerValue)
		}
	}
	return contentOf(attributes, value)
}

// attributeText returns the canonical text of an attribute's value (CloudEvents 1.0.2,
// section "type system"): those of the specification are texts, extensions may be a boolean
// or an integer of 32 bits.
func attributeText(name string, n canonicaltree.Node) (string, error) {
	switch {
	case attributeName(name):
	case attributeName(strings.ToLower(name)):
		return "", invalidEvent("the name of an attribute has capitals, which CloudEvents forbids; " +
			"Debezium's iodebeziumtxId does: let it send JSON, to a source of format debezium")
	default:
		return "", invalidEvent("the event has an attribute whose name is not of lower-case letters and digits")
	}
	switch text, isText := n.Text(); {
	case isText && strings.ContainsRune(text, 0):
		return "", invalidEvent("an attribute holds a NUL")
	case isText:
		return text, nil
	case slices.Contains([]string{"specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema"}, name):
		return "", invalidEvent("an attribute is no string")
	}
	switch n.Kind() {
	case canonicaltree.True:
		return "true", nil
	case canonicaltree.False:
		return "false", nil
	case canonicaltree.Number:
		if i, err := strconv.ParseInt(string(n.Raw()), 10, 32); err == nil {
			return strconv.FormatInt(i, 10), nil
		}
		return "", invalidEvent("an extension attribute is a number and no integer of 32 bits")
	}
	return "", invalidEvent("an extension attribute is an array or an object")
}

func attributeName(s string) bool {
	for i := range len(s) {
		if (s[i] < 'a' || s[i] > 'z') && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return s != ""
}

func mediaJSON(text string) bool {
	kind, _, err := mime.ParseMediaType(text)
	return err == nil && isJSON(kind)
}

// contentOf checks the attributes and returns the data, nil without any, and the
// attributes as metadata: ce_id, ce_source and so on.
func contentOf(attributes map[string]string, data []byte) (value []byte, meta message.Metadata, err error) {
	if attributes["specversion"] != specVersion {
		return nil, nil, invalidEvent("specversion is not 1.0")
	}
	known := 0
	for name, required := range map[string]bool{"specversion": true, "id": true, "source": true, "type": true, "subject": false, "time": false, "datacontenttype": false, "dataschema": false} {
		text, there := attributes[name]
		if (there || required) && strings.TrimSpace(text) == "" {
			return nil, nil, invalidEvent("%s is missing or empty", name)
		}
		if there {
			known++
		}
	}
	if len(attributes)-known > maxAttributes {
		return nil, nil, invalidEvent("the event has more than %d extension attributes", maxAttributes)
	}
	if _, err := url.Parse(attributes["source"]); err != nil || strings.Contains(attributes["source"], " ") {
		return nil, nil, invalidEvent("source is no URI reference")
	}
	if text, there := attributes["dataschema"]; there {
		if schema, err := url.Parse(text); err != nil || !schema.IsAbs() {
			return nil, nil, invalidEvent("dataschema is no absolute URI")
		}
	}
	if kind, there := attributes["datacontenttype"]; there && !mediaJSON(kind) {
		return nil, nil, invalidEvent("datacontenttype is not JSON")
	}
	if at, there := attributes["time"]; there {
		moment, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			return nil, nil, invalidEvent("time is not in the form of RFC 3339")
		}
		attributes["time"] = moment.UTC().Format(time.RFC3339Nano)
	}
	// Source and id together are unique (CloudEvents 1.0.2, section "id"); a source has no
	// space.
	meta = message.Metadata{ceIdentity: attributes["source"] + " " + attributes["id"]}
	for name, text := range attributes {
		meta["ce_"+name] = text
	}
	if inner := bytes.TrimSpace(data); len(inner) == 0 || string(inner) == "null" {
		return nil, meta, nil
	}
	return data, meta, nil
}
