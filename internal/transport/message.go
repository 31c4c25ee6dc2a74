package transport

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
)

// UUIDHeader is the header that carries a message's UUID, as in watermill-kafka.
const UUIDHeader = "_watermill_message_uuid"

// RefusalHeader is the header of an event that its source cannot turn into one of an entity. It
// has the code and the reason of the dead letter, with ": " between them.
const RefusalHeader = "weir-refusal"

// RefusedPayload is the payload of such an event, until an edit of its dead letter replaces it.
var RefusedPayload = []byte("{}")

// MessageID returns the identity of a record that carries no UUID: the topic's
// identity, partition and offset.
func MessageID(topicID string, partition int32, offset int64) string {
	b := make([]byte, 0, len(topicID)+24)
	b = append(b, topicID...)
	b = append(b, '-')
	b = strconv.AppendInt(b, int64(partition), 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, offset, 10)
	return string(b)
}

// ReceivedOf returns the record that m would be read as, without a place in a log: the
// key and the null value from the metadata entries of this package, every other entry
// and the UUID as headers. The payload is kept, not copied.
func ReceivedOf(m *message.Message) Received {
	r := Received{Value: m.Payload}
	r.Headers = make([]Header, 0, len(m.Metadata)+1)
	if m.UUID != "" {
		r.Headers = append(r.Headers, Header{Key: UUIDHeader, Value: []byte(m.UUID)})
	}
	for k, v := range m.Metadata {
		switch k {
		case KeyMetadata:
			r.Key = []byte(v)
		case NullMetadata:
			if v == "1" {
				r.Value = nil
			}
		default:
			r.Headers = append(r.Headers, Header{Key: k, Value: []byte(v)})
		}
	}
	if r.Value == nil && m.Metadata[NullMetadata] != "1" {
		r.Value = []byte{}
	}
	return r
}
