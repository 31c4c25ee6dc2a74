package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
)

// Config reads tables of a PostgreSQL database, 14 or later, by logical replication. Each table
// is a source.
type Config struct {
	// URL of the database. It may hold a password.
	URL config.Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Tables by schema.name.
	Tables []Table `yaml:"tables" required:"true"`
	// Slot is the replication slot. Defaults to weir_ and the source's name.
	Slot string `yaml:"slot"`
	// Publication of the tables. Defaults to the slot's name.
	Publication string `yaml:"publication"`
	// Retain is how much of its log the server may keep for the slot; with more the slot is
	// dropped, and the rows are read again later.
	Retain config.Size `yaml:"retain" default:"64GiB" range:"1MiB..16384GiB"`

	source string // its name
}

// Table is a table and the source that it is.
type Table struct {
	Name string `yaml:"-" key:"true"`
	// Entity is the column that is the entity's id, or several: joined by /.
	Entity []string `yaml:"entity,single" required:"true"`
	// Source is the source's name. Defaults to the names of the database's source and the table.
	Source string `yaml:"source"`
	// Mount is the member of the merged document under which the row appears.
	Mount string `yaml:"mount"`
	// Strip lists patterns of paths that no service needs.
	Strip []string `yaml:"strip"`
	// MaxEvent is the largest row; a larger one becomes a dead letter.
	MaxEvent config.Size `yaml:"max_event" default:"8MiB" range:"1KiB..96MiB"`
}

// Kind implements config.SourceConfig.
func (*Config) Kind() string { return "postgres" }

// CheckLocators implements config.SourceConfig.
func (*Config) CheckLocators(*config.Checker, *config.Source) {}

// Reads implements config.SourceConfig.
func (*Config) Reads(*config.Cluster) string { return "" }

// Check implements config.SourceConfig. Each table is checked as a source of its own.
func (c *Config) Check(check *config.Checker, _ *config.Source) {
	if check.Known("tables") && len(c.Tables) == 0 {
		check.Fault("tables", "is empty", "at least one table")
	}
}

// Open implements sources.Kind.
func (*Config) Open(context.Context, sources.Env) (sources.Source, error) {
	return nil, errors.New("the source has no tables")
}

// Divide implements config.Divided.
func (c *Config) Divide(s *config.Source) (parts []config.Part) {
	c.Slot = cmp.Or(c.Slot, "weir_"+strings.ReplaceAll(s.Name, "-", "_"))
	c.source = s.Name
	c.Publication = cmp.Or(c.Publication, c.Slot)
	names := map[string]string{}
	for i := range c.Tables {
		t := &c.Tables[i]
		name := t.Source
		if name == "" {
			name = s.Name + "_" + strings.ReplaceAll(strings.TrimPrefix(t.Name, "public."), ".", "_")
		}
		names[t.Name] = name
		part := *s
		part.Name, part.Mount, part.Strip, part.MaxEvent = name, t.Mount, t.Strip, t.MaxEvent
		part.Input = &tableSource{Config: c, table: *t, names: names, first: i == 0}
		parts = append(parts, config.Part{Source: part, Path: []string{"tables", t.Name}})
	}
	return parts
}

// tableSource is one table of a Config.
type tableSource struct {
	*Config
	table Table
	names map[string]string // of the sources, by table
	first bool
}

var (
	slotName  = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	tableName = regexp.MustCompile(`^[^.]+\.[^.]+$`)
)

// Check implements config.SourceConfig. What all tables have in common is checked once.
func (c *tableSource) Check(check *config.Checker, _ *config.Source) {
	at := config.Key("tables", c.table.Name)
	if !tableName.MatchString(c.table.Name) {
		check.FaultKey(at, "is not the name of a table", "schema.name")
	}
	for i, column := range c.table.Entity {
		if key := fmt.Sprintf("%s[%d]", config.Key(at, "entity"), i); column == "" {
			check.Fault(key, "is empty", "the name of a column")
		}
	}
	if !c.first {
		return
	}
	check.Database("url", c.URL)
	if !c.Insecure {
		check.PlainPostgres("url", c.URL)
	}
	if !slotName.MatchString(c.Slot) {
		check.Fault("slot", "is not the name of a slot", "up to 63 of a to z, 0 to 9 and _")
	}
	if len(c.Publication) > 63 {
		check.Fault("publication", "is longer than 63 bytes", "a shorter name")
	}
	if first, taken := check.Claim("slot "+c.Slot+" of "+c.URL.Reveal(), ""); taken {
		check.Fault("slot", "is the slot of "+first+" too", "a slot of its own, or its tables there")
	}
}

// Envelope implements config.SelfDescribing.
func (c *tableSource) Envelope() config.Envelope {
	return config.Envelope{Noun: "row of table " + c.table.Name, Entity: config.Locator{Key: true}, Sequence: config.Locator{Header: SequenceHeader}, Session: config.Locator{Header: SessionHeader}, UUID: true, Unchanged: config.Locator{Header: UnchangedHeader}}
}

// Fingerprint implements config.SelfDescribing.
func (c *tableSource) Fingerprint() []any { return []any{c.table.Name, c.table.Entity} }

// EntityOf returns the entity id of a row in JSON, as the source makes it of columns that are
// numbers, texts or booleans; empty if one of them is null or absent, or of another kind.
func (c *tableSource) EntityOf(row []byte) string {
	var columns map[string]json.RawMessage
	if json.Unmarshal(row, &columns) != nil {
		return ""
	}
	values := make([]value, len(c.table.Entity))
	for i, name := range c.table.Entity {
		raw := columns[name]
		var text string
		switch {
		case len(raw) == 0 || raw[0] == '{' || raw[0] == '[' || string(raw) == "null":
			return ""
		case string(raw) == "true", string(raw) == "false":
			text = string(raw[:1])
		case json.Unmarshal(raw, &text) != nil: // a number
			text = string(raw)
		}
		values[i].text = []byte(text)
	}
	return newShape(c.table.Entity, make([]valueType, len(values)), c.table.Entity).id(values)
}

// PositionText returns the position of an event as the server writes it. There is one partition.
func (c *tableSource) PositionText(_ int32, offset int64) string {
	return pglogrepl.LSN(offset).String()
}

// Setup returns the publication and the slot.
func (c *Config) Setup() Setup {
	s := Setup{Source: c.source, URL: c.URL.Reveal(), Slot: c.Slot, Publication: c.Publication}
	for i := range c.Tables {
		s.Tables = append(s.Tables, c.Tables[i].Name)
	}
	return s
}

// options are the reader's options, without an environment.
func (c *tableSource) options() Options {
	o := Options{Setup: c.Setup(), Entities: map[string][]string{}, MaxEvents: map[string]int{}, Retain: int64(c.Retain), Logger: slog.New(slog.DiscardHandler)}
	for i := range c.Tables {
		o.Entities[c.Tables[i].Name], o.MaxEvents[c.Tables[i].Name] = c.Tables[i].Entity, int(c.Tables[i].MaxEvent)
	}
	return o
}

// Open implements sources.Kind. The sources of a slot share a reader.
func (c *tableSource) Open(ctx context.Context, e sources.Env) (sources.Source, error) {
	o := c.options()
	o.Positions, o.Logs, o.Stored, o.Decided, o.Barrier, o.Pipeline = e.Positions, e.Logs, e.Stored, e.Decided, e.Barrier, e.StoreID
	o.Limit, o.Logger = e.Limit, e.Logger
	shared := e.Shared.Of("postgres "+o.URL+" "+o.Slot, func() any { return NewReader(o, c.names) })
	source := shared.(*Reader).Source(c.table.Name)
	if e.Complete { // it would wait without end
		var fault *SetupError
		if err := source.check(ctx, false); errors.As(err, &fault) {
			return nil, err
		}
	}
	return source, nil
}

// Ask implements reach.Target: it checks the tables and the slot, too.
func (c *tableSource) Ask(ctx context.Context, _ func(config.Cluster) (transport.Config, error)) error {
	return NewReader(c.options(), c.names).Source(c.table.Name).check(ctx, true)
}
