package transport

import (
	"context"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
)

// UUIDHeader is the header that carries a message's UUID, the one that
// watermill-kafka uses.
const UUIDHeader = "_watermill_message_uuid"

// MessageID gives the identity of a record that carries no UUID: the topic's
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

// toMessage turns any record into a message; it cannot fail, because a record
// that stopped its subscriber would be met again for ever.
func toMessage(ctx context.Context, r *kgo.Record, topicID string) *message.Message {
	m := message.NewMessageWithContext(ctx, "", r.Value)
	meta := m.Metadata
	for _, h := range r.Headers {
		switch h.Key {
		case UUIDHeader:
			m.UUID = string(h.Value)
		case KeyMetadata, NullMetadata: // ours to say, not the producer's
		default:
			meta[h.Key] = string(h.Value)
		}
	}
	if r.Key != nil {
		meta[KeyMetadata] = string(r.Key)
	}
	if r.Value == nil {
		meta[NullMetadata] = "1"
	}
	if m.UUID == "" {
		m.UUID = MessageID(topicID, r.Partition, r.Offset)
	}
	return m
}

// FromMessage gives the record that a publisher appends for m: the key and
// the null value from the metadata entries of this package, every other entry
// and the UUID as headers. It keeps m's payload, it does not copy it.
func FromMessage(topic string, m *message.Message) Record {
	r := Record{Topic: topic, Value: m.Payload}
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

// recordSize is what a record costs in memory and, give or take some bytes per
// field, on the wire.
func recordSize(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value) + 32
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 12
	}
	return int64(n)
}
