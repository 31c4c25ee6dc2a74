package events

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
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

// errSource is of a source that the SDK would escape, so that it was another's.
var errSource = invalidEvent("source is no URI reference: it holds a space")

// binaryEvent reads the CloudEvent of a request whose headers hold its
// attributes (HTTP Protocol Binding 1.0.2, section 3.1).
func binaryEvent(h http.Header, body []byte) (value []byte, meta message.Metadata, err error) {
	decoded := http.Header{}
	if kind := h.Get("Content-Type"); kind != "" {
		decoded.Set("Content-Type", kind)
	}
	for name, values := range h {
		if attribute, ok := strings.CutPrefix(name, "Ce-"); ok {
			if len(values) != 1 || !attributeName(strings.ToLower(attribute)) {
				return nil, nil, invalidEvent("the headers have a CloudEvents attribute twice, or one whose name is not of letters and digits")
			}
			text, err := headerText(values[0])
			if err != nil {
				return nil, nil, err
			}
			decoded[name] = []string{text}
		}
	}
	if decoded.Get("Ce-Specversion") != event.CloudEventsVersionV1 {
		return nil, nil, invalidEvent("specversion is not 1.0")
	}
	if strings.Contains(decoded.Get("Ce-Source"), " ") {
		return nil, nil, errSource
	}
	m := cehttp.NewMessage(decoded, io.NopCloser(bytes.NewReader(body)))
	e, err := binding.ToEvent(context.Background(), m)
	if err != nil {
		return nil, nil, invalidEvent("an attribute does not have the form of its type")
	}
	return contentOf(e)
}

// headerText decodes the value of a header as section 3.1.3.2 of the binding
// says: quotes first, then one round of percent-decoding. A percent sign that
// begins no code stands for itself.
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
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "", invalidEvent("an attribute is not valid UTF-8 or holds a NUL")
	}
	return s, nil
}

// structuredEvent reads a CloudEvent from its JSON form (JSON Event Format
// 1.0.2). What the SDK would pass over or stumble on is refused first.
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
	if version, _ := root.Get("specversion").Text(); version != event.CloudEventsVersionV1 {
		return nil, nil, invalidEvent("specversion is not 1.0")
	}
	if root.Get("data").Exists() && root.Get("data_base64").Exists() {
		return nil, nil, invalidEvent("the event has both data and data_base64")
	}
	for name, n := range root.Members() {
		text, isText := n.Text()
		switch name {
		case "data":
		case "data_base64", "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema":
			if !isText && n.Kind() != canonicaltree.Null {
				return nil, nil, invalidEvent("an attribute, or data_base64, is no string")
			}
			if name == "data_base64" && !isText {
				return nil, nil, invalidEvent("data_base64 is no string")
			}
		default:
			if !attributeName(name) {
				return nil, nil, invalidEvent("the event has an attribute whose name is not of lower-case letters and digits")
			}
			switch n.Kind() {
			case canonicaltree.String, canonicaltree.True, canonicaltree.False, canonicaltree.Null:
			case canonicaltree.Number:
				if bytes.ContainsAny(n.Raw(), ".eE") {
					return nil, nil, invalidEvent("an extension attribute is a number and no integer")
				}
			default:
				return nil, nil, invalidEvent("an extension attribute is an array or an object")
			}
		}
		if name == "source" && strings.Contains(text, " ") {
			return nil, nil, errSource
		}
		if strings.ContainsRune(text, 0) && name != "data" {
			return nil, nil, invalidEvent("an attribute holds a NUL")
		}
	}
	if kind, ok := root.Get("datacontenttype").Text(); ok && !mediaJSON(kind) {
		return nil, nil, invalidEvent("datacontenttype is not JSON")
	}
	// The data stays away from the SDK, which where its type is JSON by its suffix
	// alone wants a string and takes that for the text of the data (JSON Event Format
	// 1.0.2, section 3.1: it is a JSON value).
	attributes := []byte{'{'}
	for name, n := range root.Members() { // of letters and digits, as was seen, and _
		if name != "data" {
			attributes = fmt.Appendf(attributes, `"%s":%s,`, name, n.Raw())
		}
	}
	attributes[len(attributes)-1] = '}' // specversion is there
	var e event.Event
	if err := e.UnmarshalJSON(attributes); err != nil {
		return nil, nil, invalidEvent("an attribute does not have the form of its type")
	}
	if root.Get("data_base64").Exists() {
		// What is in it was not counted when its request was let in.
		if n, _ := canonicaltree.Values(e.Data()); n > max(leastValues, len(text)/api.BytesPerValue) {
			return nil, nil, invalidEvent("data_base64 has more than a value per %d bytes; send it as data", api.BytesPerValue)
		}
	}
	value, meta, err = contentOf(&e)
	if data := root.Get("data"); err == nil && data.Exists() && data.Kind() != canonicaltree.Null {
		value = bytes.Clone(data.Raw())
	}
	return value, meta, err
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

// contentOf returns the data, nil when there is none, and the attributes as
// metadata: ce_id, ce_source and so on.
func contentOf(e *event.Event) (value []byte, meta message.Metadata, err error) {
	if err := e.Validate(); err != nil {
		return nil, nil, invalidEvent("id, source or type is missing, or an attribute is empty or does not have the form of its type")
	}
	if kind := e.DataContentType(); kind != "" && !mediaJSON(kind) {
		return nil, nil, invalidEvent("datacontenttype is not JSON")
	}
	if len(e.Extensions()) > maxAttributes {
		return nil, nil, invalidEvent("the event has more than %d extension attributes", maxAttributes)
	}
	meta = message.Metadata{
		"ce_specversion": e.SpecVersion(), "ce_id": e.ID(), "ce_source": e.Source(), "ce_type": e.Type(),
		// Source and id together are unique (CloudEvents 1.0.2, section "id"); a
		// source has no space.
		ceIdentity: e.Source() + " " + e.ID(),
	}
	for name, text := range map[string]string{"ce_subject": e.Subject(), "ce_dataschema": e.DataSchema(), "ce_datacontenttype": e.DataContentType()} {
		if text != "" {
			meta[name] = text
		}
	}
	if !e.Time().IsZero() {
		meta["ce_time"] = types.FormatTime(e.Time())
	}
	for name, v := range e.Extensions() {
		text, err := types.Format(v)
		if err != nil {
			return nil, nil, invalidEvent("an extension attribute does not have the form of its type")
		}
		meta["ce_"+name] = text
	}
	if data := bytes.TrimSpace(e.Data()); len(data) > 0 && string(data) != "null" {
		return e.Data(), meta, nil
	}
	return nil, meta, nil
}
