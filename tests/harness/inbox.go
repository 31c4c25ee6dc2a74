package harness

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Inbox reads the whole inbox of a project whose process has ended.
func (p Project) Inbox() []*kgo.Record {
	p.T.Helper()
	return p.Log("weir.inbox")
}

// Log reads a whole log of a project whose process has ended.
func (p Project) Log(name string) []*kgo.Record {
	p.T.Helper()
	if p.LogBrokers != nil {
		return ReadTopic(p.T, p.LogBrokers, p.LogPrefix+name)
	}
	return ReadLog(p.T, p.Path("data/state.db"), name)
}

// Frames reads the changes log of a SQLite file.
func Frames(t testing.TB, path string) (frames [][]byte) {
	t.Helper()
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, ReadOnly: true})
	require.NoError(t, err)
	defer file.Close()
	marks, err := file.Marks(t.Context())
	require.NoError(t, err)
	for partition := range marks {
		for after, more := change.Version(0), true; more; {
			tail, err := file.Frames(t.Context(), partition, after, 1<<20)
			require.NoError(t, err)
			more = len(tail.Frames) > 0
			for _, f := range tail.Frames {
				after, frames = f.To, append(frames, f.Body)
			}
		}
	}
	return frames
}

// Changes returns the changes of frames; their services are the store's numbers.
func Changes(t testing.TB, frames [][]byte) (all []change.Change) {
	t.Helper()
	for _, body := range frames {
		f, err := change.ParseFrame(body)
		require.NoError(t, err)
		for i := range f.Slices {
			for c, err := range f.Slices[i].All(strconv.Itoa(int(f.Slices[i].Service))) {
				require.NoError(t, err)
				all = append(all, c)
			}
		}
	}
	return all
}

// ReadLog reads a whole log of a SQLite file whose process has ended.
func ReadLog(t testing.TB, path, name string) []*kgo.Record {
	t.Helper()
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	require.NoError(t, err)
	defer file.Close()
	logs, err := embedded.Open(file, path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer func() { require.NoError(t, logs.Release()) }()
	start, end, err := logs.Offsets(t.Context(), name)
	require.NoError(t, err)
	var all []*kgo.Record
	require.NoError(t, logs.Scan(t.Context(), name, start, end, func(r transport.Scanned) error {
		all = append(all, &kgo.Record{Topic: name, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Time})
		return nil
	}))
	return all
}

// ReadTopic reads a topic from its start to its present end, partition by partition.
func ReadTopic(t testing.TB, brokers []string, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.KeepControlRecords()) // or a partition that ends with one would not end
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
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset+1 >= end.Offset {
				delete(missing, r.Partition)
			}
		})
	}
	return all
}

// Original finds the event of an inbox record as its source wrote it.
type Original func(h change.Origin) (key string, headers map[string]string, value []byte)

// ModelEvents turns inbox records into the model's events; of a table's changes the record
// itself is the original. generation is the inbox's. Control records are left out; tests that cause them do not use the model.
func ModelEvents(t testing.TB, generation uint64, records []*kgo.Record, find Original) []oracle.Event {
	t.Helper()
	events := make([]oracle.Event, 0, len(records))
	for _, r := range records {
		require.NotEmpty(t, r.Headers)
		require.Equal(t, "weir", r.Headers[0].Key)
		for _, more := range r.Headers[1:] {
			require.Contains(t, []string{"traceparent", "tracestate"}, more.Key)
		}
		record, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		require.NoError(t, err)
		h := record.Event
		if h == nil {
			continue
		}
		e := oracle.Event{
			Source: h.Source, Stream: h.Topic, Partition: h.Partition, Offset: h.Offset, Index: h.Index,
			Version: generation<<48 | uint64(r.Offset), Key: record.Entity, Headers: map[string]string{"sequence": h.Sequence}, Value: r.Value,
		}
		if !strings.HasPrefix(h.Topic, "postgres-") {
			e.Key, e.Headers, e.Value = find(h.Origin)
		}
		events = append(events, e)
	}
	return events
}

// Lines returns the events of file sources by their offset, and checks at the
// end that none is missing in the inbox.
type Lines struct {
	T    testing.TB
	All  map[string]map[int64]string // source to offset to line
	Seen map[string]map[int64]bool
}

// ReadLines reads the files of file sources: source to path.
func ReadLines(t testing.TB, files map[string]string) *Lines {
	l := &Lines{t, map[string]map[int64]string{}, map[string]map[int64]bool{}}
	for source, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		l.All[source], l.Seen[source] = map[int64]string{}, map[int64]bool{}
		offset := int64(0)
		for line := range strings.Lines(string(text)) {
			l.All[source][offset] = strings.TrimRight(line, "\n")
			offset += int64(len(line))
		}
	}
	return l
}

// Find is an Original.
func (l *Lines) Find(h change.Origin) (string, map[string]string, []byte) {
	line, ok := l.All[h.Source][h.Offset]
	require.True(l.T, ok, "source %s has no line at %d", h.Source, h.Offset)
	l.Seen[h.Source][h.Offset] = true
	return "", nil, []byte(line)
}

// Complete checks that every line is in the inbox, or one like it that the
// gate took for the same.
func (l *Lines) Complete() {
	l.T.Helper()
	for source, all := range l.All {
		taken := map[string]bool{}
		for offset := range l.Seen[source] {
			taken[all[offset]] = true
		}
		for offset, line := range all {
			require.True(l.T, taken[line], "source %s: the line at %d is not in the inbox", source, offset)
		}
	}
}
