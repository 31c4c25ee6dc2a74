package assemble

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Events and changes of every configurable size have a producer. The mistake that this catches: Kafka's clients and servers take no
// request above 100 MiB.
func TestTheLargestRecordsHaveAProducer(t *testing.T) {
	most := func(section any, name string) (size config.Size) {
		field, ok := reflect.TypeOf(section).FieldByName(name)
		require.True(t, ok)
		_, text, _ := strings.Cut(field.Tag.Get("range"), "..")
		require.NoError(t, size.UnmarshalText([]byte(text)))
		return size
	}
	c := loadExample(t, "banana")
	c.Limits.Change = most(config.Limits{}, "Change")
	c.Sources[0].MaxEvent = most(config.Source{}, "MaxEvent")
	producer, err := Producer(c, transport.Config{Brokers: []string{"127.0.0.1:1"}, Logger: slog.New(slog.DiscardHandler)}, kgo.SnappyCompression())
	require.NoError(t, err)
	require.NoError(t, producer.Close(t.Context()))
	require.Less(t, MaxRecord(c)+2*recordOverhead, 100<<20, "socket.request.max.bytes of Kafka's servers")
}
