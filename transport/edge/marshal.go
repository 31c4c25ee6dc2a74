package edge

import (
	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/transport"
)

// marshaler makes the record that transport.FromMessage gives.
type marshaler struct{}

func (marshaler) Marshal(topic string, m *message.Message) (*sarama.ProducerMessage, error) {
	r := transport.FromMessage(topic, m)
	out := &sarama.ProducerMessage{Topic: topic}
	// A nil encoder is a null; an encoder of nil bytes would be an empty value.
	if r.Key != nil {
		out.Key = sarama.ByteEncoder(r.Key)
	}
	if r.Value != nil {
		out.Value = sarama.ByteEncoder(r.Value)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	return out, nil
}

// unmarshal cannot fail: an error would end the session, and the record would
// be met again in the next one, for ever.
func unmarshal(r *sarama.ConsumerMessage, topicID string) *message.Message {
	uuid := ""
	meta := make(message.Metadata, len(r.Headers)+1)
	for _, h := range r.Headers {
		switch k := string(h.Key); k {
		case transport.UUIDHeader:
			uuid = string(h.Value)
		case transport.KeyMetadata, transport.NullMetadata: // ours to say, not the producer's
		default:
			meta[k] = string(h.Value)
		}
	}
	if r.Key != nil {
		meta[transport.KeyMetadata] = string(r.Key)
	}
	if r.Value == nil {
		meta[transport.NullMetadata] = "1"
	}
	if uuid == "" {
		uuid = transport.MessageID(topicID, r.Partition, r.Offset)
	}
	m := message.NewMessage(uuid, r.Value)
	m.Metadata = meta
	return m
}
