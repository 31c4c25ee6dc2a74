package ingest_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// nullRecord represents a record whose value is null.
const nullRecord = `"null record"`

// formatCase is an event as a tool writes it, and how its source is configured.
type formatCase struct {
	Tool      string        `json:"tool"` // that wrote the record, where it was captured
	Format    ingest.Format `json:"format"`
	Entity    string        `json:"entity"` // a path, key or header:NAME
	EventID   string        `json:"event_id"`
	Sequence  string        `json:"sequence"`
	Operation string        `json:"operation"`
	Payload   string        `json:"payload"`
	Strip     []string      `json:"strip"`
	// DeleteValues are d if there are none.
	DeleteValues    []string `json:"delete_values"`
	RowImage        string   `json:"row_image"`
	UnchangedAsNull []string `json:"unchanged_as_null"`
	// Unavailable is the placeholder; Debezium's default with format debezium.
	Unavailable string            `json:"unavailable_value"`
	Key         json.RawMessage   `json:"key"`
	Headers     map[string]string `json:"headers"`
	Value       json.RawMessage   `json:"value"`
}

func (c formatCase) shape(t testing.TB) ingest.Extractor {
	rules, err := stripper.Compile(c.Strip)
	require.NoError(t, err)
	if c.Format == ingest.Debezium {
		c.Unavailable = cmp.Or(c.Unavailable, ingest.DebeziumUnavailable)
	}
	unavailable, err := ingest.NewUnavailable(c.Unavailable)
	require.NoError(t, err)
	return ingest.Extractor{
		Unavailable: unavailable,
		Source:      "crm", Format: c.Format, Entity: locator(c.Entity), EventID: locator(c.EventID), Sequence: locator(c.Sequence),
		Operation: locator(c.Operation), Payload: c.Payload, IsDelete: func(op string) bool { return op == "d" || slices.Contains(c.DeleteValues, op) },
		WholeRows: c.RowImage == "full", UnchangedAsNull: c.UnchangedAsNull,
		Strip: rules, MaxEvent: 1 << 20, MaxEntity: 64,
	}
}

func locator(text string) ingest.Locator {
	name, isHeader := strings.CutPrefix(text, "header:")
	switch {
	case text == "key":
		return ingest.Locator{Key: true}
	case isHeader:
		return ingest.Locator{Header: name}
	}
	return ingest.Locator{Path: text}
}

func (c formatCase) message(t testing.TB) *message.Message {
	m := message.NewMessage("", []byte(c.Value))
	if string(c.Value) == nullRecord {
		m.Payload = nil
		m.Metadata.Set(transport.NullMetadata, "1")
	}
	if c.Key != nil {
		text := string(c.Key)
		if strings.HasPrefix(text, `"`) { // keys of StringConverter are bare
			require.NoError(t, json.Unmarshal(c.Key, &text))
		}
		m.Metadata.Set(transport.KeyMetadata, text)
	}
	for name, value := range c.Headers {
		m.Metadata.Set(name, value)
	}
	return m
}

func formatCases(t testing.TB) map[string]formatCase {
	files, err := filepath.Glob("testdata/format/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	cases := map[string]formatCase{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var c formatCase
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		require.NoError(t, d.Decode(&c), file)
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, c.Value))
		c.Value = compact.Bytes()
		cases[strings.TrimSuffix(filepath.Base(file), ".json")] = c
	}
	return cases
}

// outcomeOf writes what became of an event.
func outcomeOf(record change.Record, letter *store.DeadLetter) string {
	switch {
	case letter != nil:
		return "dead letter " + letter.Code + ": " + letter.Reason + "\n"
	case record.Entity == "":
		return "skipped\n"
	}
	e := record.Event
	text := string(e.Op) + " " + record.Entity
	if e.Sequence != "" {
		text += "\nsequence " + e.Sequence
	}
	if e.EventID != "" {
		text += "\nevent id " + e.EventID
	}
	for _, column := range e.Unchanged {
		text += "\nunchanged " + column
	}
	if e.Payload != nil {
		text += "\n" + string(e.Payload)
	}
	return text + "\n"
}

// Events in the form of the tools' documentation, and the outcome of
// each: an upsert of the row, a delete, nothing, or a dead letter that says why.
func TestFormats(t *testing.T) {
	for name, c := range formatCases(t) {
		t.Run(name, func(t *testing.T) {
			s := c.shape(t)
			records, letter := takeAll(s, c.message(t))
			got := ""
			for _, r := range records {
				got += outcomeOf(r, nil)
				require.Equal(t, change.Origin{Source: "crm", Topic: "T1", Partition: 3, Offset: 42}, r.Event.Origin)
			}
			if len(records) == 0 {
				got = outcomeOf(change.Record{}, letter)
			}
			golden := filepath.Join("testdata/format", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
			if letter == nil {
				return
			}
			require.Equal(t, string(c.message(t).Payload), string(letter.Payload), "a letter keeps the event as it came")
			_, again := s.Redelivered(*letter)
			require.NotNil(t, again)
			require.Equal(t, letter.Code, again.Code, "nothing of the event is lost in its letter")
		})
	}
}

// A letter whose envelope was edited into one of no row cannot be replayed.
func TestALetterThatIsNoRowAnyMoreIsNotReplayed(t *testing.T) {
	c := formatCases(t)["debezium-truncate"]
	s := c.shape(t)
	_, letter := take(s, c.message(t))
	letter.Payload = []byte(`{"ts_ms":1559033904961}`)
	_, again := s.Redelivered(*letter)
	require.NotNil(t, again)
	require.Equal(t, "skipped", again.Code)
}

// Any input is ingested with a valid entity and document, skipped,
// or a dead letter whose reason holds nothing of it; and the same twice.
func FuzzFormats(f *testing.F) {
	for _, c := range formatCases(f) {
		m := c.message(f)
		f.Add(c.Format == ingest.Maxwell, c.Entity, m.Metadata.Get(transport.KeyMetadata), []byte(m.Payload))
	}
	f.Fuzz(func(t *testing.T, maxwell bool, entity, key string, value []byte) {
		c := formatCase{Format: ingest.Debezium, Entity: "id", Value: value}
		if maxwell {
			c.Format = ingest.Maxwell
		}
		if entity == "key" {
			c.Entity = entity
		}
		s := c.shape(t)
		once := func() (change.Record, *store.DeadLetter) {
			m := message.NewMessage("", value)
			m.Metadata.Set(transport.KeyMetadata, key)
			if value == nil {
				m.Metadata.Set(transport.NullMetadata, "1")
			}
			return take(s, m)
		}
		record, letter := once()
		again, letterAgain := once()
		require.Equal(t, outcomeOf(record, letter), outcomeOf(again, letterAgain))
		if letter != nil {
			require.True(t, utf8.ValidString(letter.Reason))
			require.NotContains(t, letter.Reason, "\x00", "a store must be able to keep it")
			return
		}
		if record.Entity == "" {
			return
		}
		_, _, _, err := change.EncodeRecord(record)
		require.NoError(t, err)
		if record.Event.Op == change.Upsert {
			tree, err := canonicaltree.Parse(record.Event.Payload)
			require.NoError(t, err)
			require.Equal(t, canonicaltree.Object, tree.Root().Kind())
			tree.Release()
		}
	})
}
