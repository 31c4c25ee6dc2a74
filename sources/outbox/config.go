package outbox

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
)

// Config reads a table of a PostgreSQL database, 13 or later. Several
// processes may read it side by side.
type Config struct {
	// URL of the database. It may hold a password.
	URL config.Secret `yaml:"url" required:"true"`
	// Insecure allows a connection that is not encrypted, or whose server is not
	// verified, to another machine.
	Insecure bool `yaml:"insecure" default:"false"`
	// Table is the table's name, with its schema unless that is on the search_path.
	Table string `yaml:"table" required:"true"`
	// Columns are the names of its columns.
	Columns Columns `yaml:"columns"`
	// Poll is how often the table is looked at while it is empty.
	Poll config.Duration `yaml:"poll" default:"1s" range:"10ms..1h"`
	// Batch is the most rows of one transaction.
	Batch int `yaml:"batch" default:"500" range:"1..10000"`
	// Channel of NOTIFY that ends the wait of poll.
	Channel string `yaml:"channel"`

	sequenced bool // the source has a sequence
}

// Kind implements config.SourceConfig.
func (*Config) Kind() string { return "outbox" }

// ApplyDefaults implements config.SourceDefaults.
func (c *Config) ApplyDefaults(s *config.Source, _ *config.Config) {
	c.sequenced = !s.Sequence.IsZero()
}

// CheckLocators implements config.SourceConfig: columns take the place of locators.
func (c *Config) CheckLocators(check *config.Checker, s *config.Source) {
	for key, at := range s.Locators() {
		switch {
		case key == "entity" || key == "event_id" || key == "operation":
			if check.HasBeside(key) {
				check.FaultKeyBeside(key, "is a column of an outbox", "its name in outbox.columns")
			}
		case at.Header != "" && c.Columns.Headers == "":
			check.FaultBeside(key, "needs headers", "outbox.columns.headers beside it, or a gjson path")
		}
	}
}

// sqlName matches a name that needs no quotes in SQL, apart from its case.
var sqlName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*$`)

// Check implements config.SourceConfig.
func (c *Config) Check(check *config.Checker, s *config.Source) {
	check.Database("url", c.URL)
	if check.Known("table") && c.Table != "" {
		parts := strings.Split(c.Table, ".")
		if len(parts) > 2 || slices.ContainsFunc(parts, func(part string) bool { return !sqlName.MatchString(part) }) {
			check.Fault("table", "is not the name of a table", "schema.name, of letters, digits, _ and $")
		}
	}
	for _, column := range []struct{ key, name string }{
		{"id", c.Columns.ID}, {"entity", c.Columns.Entity}, {"payload", c.Columns.Payload},
	} {
		if key := config.Key("columns", column.key); check.Known(key) && column.name == "" {
			check.Fault(key, "is empty", "the name of a column")
		}
	}
	if s.Format != config.FormatJSON && check.KnownBeside("format") {
		check.FaultBeside("format", "is not for an outbox, whose columns say everything", "json")
	}
	if check.HasBeside("delete_values") && c.Columns.Operation == "" {
		check.FaultKeyBeside("delete_values", "has no effect without an operation column", "outbox.columns.operation beside it")
	}
	if !c.Insecure {
		check.PlainPostgres("url", c.URL)
	}
}

// Reads implements config.SourceConfig.
func (*Config) Reads(*config.Cluster) string { return "" }

// Envelope implements config.SelfDescribing.
func (c *Config) Envelope() config.Envelope {
	e := config.Envelope{Entity: config.Locator{Key: true}, EventID: config.Locator{Header: EventIDMetadata}, UUID: true}
	if c.Columns.Operation != "" {
		e.Operation = config.Locator{Header: OperationMetadata}
	}
	return e
}

// Fingerprint implements config.SelfDescribing.
func (c *Config) Fingerprint() []any {
	return []any{c.Columns.ID, c.Columns.Order, c.Columns.Entity, c.Columns.Payload, c.Columns.EventID, c.Columns.Operation, c.Columns.Headers}
}

func (c *Config) source(e sources.Env) (*Source, error) {
	return New(Options{
		Name: e.Name, URL: c.URL.Reveal(), Table: c.Table, Columns: c.Columns, Sequenced: c.sequenced,
		Batch: c.Batch, Poll: c.Poll.D(), Channel: c.Channel, Limit: e.Limit, Logger: e.Logger,
	})
}

// Open implements sources.Kind. A table that cannot be read as it is configured is an error. An
// unreachable database is waited for.
func (c *Config) Open(ctx context.Context, e sources.Env) (sources.Source, error) {
	source, err := c.source(e)
	if err != nil {
		return nil, err
	}
	var setup *SetupError
	if err := source.Check(ctx); errors.As(err, &setup) {
		return nil, errors.Join(err, source.Close())
	}
	return source, nil
}

// Ask implements reach.Target: it checks the table, too.
func (c *Config) Ask(ctx context.Context, _ func(config.Cluster) (transport.Config, error)) error {
	source, err := c.source(sources.Env{Name: "check", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(source.Check(ctx), source.Close())
}
