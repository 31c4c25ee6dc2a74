package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/seed-86dfc502/weir/transport/embedded"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// inboxHead is the header of an inbox record, as far as it tells where an
// event came from.
type inboxHead struct {
	Kind      string `json:"k"`
	Source    string `json:"s"`
	Topic     string `json:"t"`
	Partition int32  `json:"p"`
	Offset    int64  `json:"o"`
	EventID   string `json:"i"`
}

// embeddedInbox reads the whole inbox of a project whose process has ended.
func (p project) embeddedInbox() []*kgo.Record {
	p.t.Helper()
	b, err := embedded.Start(p.t.Context(), embedded.Options{Dir: p.path("data/kafka")})
	require.NoError(p.t, err)
	defer b.Close()
	return readTopic(p.t, b.Addrs(), "weir.inbox")
}

// readTopic reads a topic from its start to its present end, partition by partition.
func readTopic(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListEndOffsets(ctx, topic)
	require.NoError(t, err)
	require.NoError(t, ends.Error())
	starts, err := admin.ListStartOffsets(ctx, topic)
	require.NoError(t, err)
	missing := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		if s, _ := starts.Lookup(topic, o.Partition); s.Offset < o.Offset {
			missing[o.Partition] = true
		}
	})
	var all []*kgo.Record
	for len(missing) > 0 {
		f := client.PollFetches(ctx)
		require.NoError(t, f.Err0())
		f.EachRecord(func(r *kgo.Record) {
			all = append(all, r)
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset+1 >= end.Offset {
				delete(missing, r.Partition)
			}
		})
	}
	return all
}

// original finds the event of an inbox record as its source wrote it.
type original func(h inboxHead) (key string, headers map[string]string, value []byte)

// modelEvents turns inbox records into the model's events. generation is the
// inbox's. Control records are left out; tests that cause them do not use the model.
func modelEvents(t testing.TB, generation uint64, records []*kgo.Record, find original) []model.Event {
	t.Helper()
	events := make([]model.Event, 0, len(records))
	for _, r := range records {
		require.Len(t, r.Headers, 1)
		var h inboxHead
		require.NoError(t, json.Unmarshal(r.Headers[0].Value, &h))
		if h.Kind != "e" {
			continue
		}
		key, headers, value := find(h)
		events = append(events, model.Event{
			Source: h.Source, Stream: h.Topic, Partition: h.Partition, Offset: h.Offset,
			Version: generation<<48 | uint64(r.Offset), Key: key, Headers: headers, Value: value,
		})
	}
	return events
}

// lines gives the events of file sources by their offset, and checks at the
// end that none is missing in the inbox.
type lines struct {
	t    testing.TB
	all  map[string]map[int64]string // source to offset to line
	seen map[string]map[int64]bool
}

func readLines(t testing.TB, files map[string]string) *lines {
	l := &lines{t, map[string]map[int64]string{}, map[string]map[int64]bool{}}
	for source, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		l.all[source], l.seen[source] = map[int64]string{}, map[int64]bool{}
		offset := int64(0)
		for line := range strings.Lines(string(text)) {
			l.all[source][offset] = strings.TrimRight(line, "\n")
			offset += int64(len(line))
		}
	}
	return l
}

func (l *lines) find(h inboxHead) (string, map[string]string, []byte) {
	line, ok := l.all[h.Source][h.Offset]
	require.True(l.t, ok, "source %s has no line at %d", h.Source, h.Offset)
	l.seen[h.Source][h.Offset] = true
	return "", nil, []byte(line)
}

// complete checks that every line is in the inbox, or one like it that the
// gate took for the same.
func (l *lines) complete() {
	l.t.Helper()
	for source, all := range l.all {
		taken := map[string]bool{}
		for offset := range l.seen[source] {
			taken[all[offset]] = true
		}
		for offset, line := range all {
			require.True(l.t, taken[line], "source %s: the line at %d is not in the inbox", source, offset)
		}
	}
}
