package clickhouse

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// Sink writes one service's changes to one table. Open and Write are called
// from one goroutine at a time; Scan and Traits may run beside them.
type Sink struct {
	options    Options
	server     *sinks.Lease[driver.Conn]
	database   string
	table      string
	converters []converter // one per typed column

	session atomic.Pointer[session] // nil until Open was called
}

// session is the result of Open: the shared connection pool and the features of the server.
type session struct {
	conn    driver.Conn
	version version
	types   map[string]string // the table's columns, as the server spells them
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It checks the options, all of them at once, and needs no
// network.
func New(o Options) (*Sink, error) {
	client, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Sink{options: o}
	s.database, s.table, _ = strings.Cut(o.Table, ".")
	for _, c := range o.Columns {
		convert, err := newConverter(c.Type, sqlsink.Unit(c.Unit))
		if err != nil {
			return nil, err
		}
		s.converters = append(s.converters, convert)
	}
	s.server = sinks.Share(o.Targets, sinks.ClientConfig[driver.Conn]{
		Key:         sinks.ClientKey("clickhouse", o.URL),
		Connections: client.MaxOpenConns, Tenant: o.Table,
		Open:  func() (driver.Conn, error) { return clickhouse.Open(client) },
		Close: driver.Conn.Close,
	})
	return s, nil
}

// Traits returns the sink's kind and limits.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{
		Kind:     sinks.State,
		MaxBatch: s.options.MaxBatch,
		MaxBytes: maxBytes,
		Linger:   s.options.Linger,
		Guarded:  true,
	}
}

// Open creates the table and its view where they are missing and CreateTable
// allows it, and checks existing objects. All faults are one error of
// class Pause.
func (s *Sink) Open(ctx context.Context) error {
	conn, err := s.server.Client()
	if err != nil {
		return classify("connect", err, false)
	}
	return sqlsink.Connected(ctx, s.server, 0, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errors.New("clickhouse sink: opening took too long"))
		defer cancel()
		opened, err := s.prepareTable(ctx, conn)
		if err != nil {
			return classify("open", err, false)
		}
		s.session.Store(opened)
		return nil
	})
}

// Close returns the service's share in the pool. The last sink of a target closes
// the pool, and a Write or Scan under way fails then.
func (s *Sink) Close() error {
	s.session.Store(nil)
	return s.server.Close()
}

// Write inserts the changes. See the package comment for its guarantee and
// sinks.Sink for its errors.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	opened := s.session.Load()
	if opened == nil {
		return sqlsink.ErrNotOpen
	}
	columns := s.columns(change.Upsert)
	w := batch.Writer{Blame: blame, Most: s.options.MaxBatch}
	w.Insert = func(ctx context.Context, rows []batch.Row) *sinks.Error {
		return s.insert(ctx, opened, columns, rows)
	}
	upserts, retractions, err := s.rows(changes, &w)
	if err != nil {
		return err
	}
	if len(upserts)+len(retractions) > 0 {
		if err := sqlsink.Connected(ctx, s.server, len(changes), func() error {
			if err := w.Write(ctx, upserts); err != nil {
				return err
			}
			// Without the columns of the document, which so get their defaults.
			columns = s.columns(change.Retract)
			return w.Write(ctx, retractions)
		}); err != nil {
			return err
		}
	}
	return w.Result(len(changes), refusal)
}

// columns returns the columns that an insert names. The server sets synced_at.
func (s *Sink) columns(op change.Op) []string {
	columns := []string{"service", "entity", "version", "is_deleted", "key", "changed_at"}
	if op == change.Retract {
		return columns
	}
	for _, c := range s.content() {
		columns = append(columns, c.Name)
	}
	return columns
}

// content returns the columns that hold the document.
func (s *Sink) content() config.Columns {
	return sqlsink.Content(s.options.Columns, "String")
}

// rows converts the changes. A change that does not fit a column fails in w.
func (s *Sink) rows(changes []change.Change, w *batch.Writer) (upserts, retractions []batch.Row, err error) {
	// Values are first tried in spare columns of the client library, which checks ranges and
	// members of enumerations: a refusal would spoil the batch.
	trial := make([]column.Interface, len(s.options.Columns))
	for i, c := range s.options.Columns {
		trial[i], err = libraryColumn(c.Type)
		if err != nil {
			return nil, nil, classify("convert", err, false)
		}
	}
	for i := range changes {
		c := &changes[i]
		if err := sqlsink.ForeignChange(c, s.options.Service); err != nil {
			return nil, nil, err
		}
		deleted := uint8(0)
		if c.Op == change.Retract {
			deleted = 1
		}
		r := batch.Row{Index: i, Change: c, Values: []any{c.Service, c.Entity, uint64(c.Version), deleted, c.Key, c.Time.UTC()}}
		if c.Op == change.Retract {
			retractions = append(retractions, r)
			continue
		}
		if len(trial) == 0 {
			r.Values = append(r.Values, string(c.Doc))
		} else if values, err := s.convert(c.Doc, trial); err != nil {
			w.Fail(i, &sinks.Error{Class: sinks.Reject, Op: "convert", Err: err})
			continue
		} else {
			r.Values = append(r.Values, values...)
		}
		upserts = append(upserts, r)
	}
	return upserts, retractions, nil
}

// convert returns the values of the typed columns. Its error names all that do not fit.
func (s *Sink) convert(doc []byte, trial []column.Interface) ([]any, error) {
	values, errs := make([]any, len(trial)), []error(nil)
	for i, c := range s.options.Columns {
		value, err := s.converters[i](gjson.GetBytes(doc, c.Path))
		if err == nil && !takes(trial[i], value) { //nolint:gosec // there is a trial for every column
			err = errors.New("a value outside the type") // the library's text would quote it
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("column %s %s: %w", c.Name, c.Type, err))
		}
		values[i] = value
	}
	return values, errors.Join(errs...)
}

// takes reports whether the library takes a value. It panics on some that it cannot
// hold, as on an IPv6 address for a column of IPv4.
func takes(trial column.Interface, value any) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return trial.AppendRow(value) == nil
}

// insert sends one block.
func (s *Sink) insert(ctx context.Context, opened *session, columns []string, rows []batch.Row) *sinks.Error {
	timed, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return sqlsink.Timed(ctx, timed, writeTimeout, s.send(timed, opened, columns, rows))
}

func (s *Sink) send(ctx context.Context, w *session, columns []string, rows []batch.Row) *sinks.Error {
	settings := clickhouse.Settings{}
	if w.version.atLeast(asyncInserts) {
		settings["async_insert"] = 0
	}
	if w.version.atLeast(deduplicationTokens) {
		settings["insert_deduplication_token"] = token(rows)
	}
	types := make([]clickhouse.ColumnNameAndType, len(columns))
	for i, name := range columns {
		types[i] = clickhouse.ColumnNameAndType{Name: name, Type: w.types[name]}
	}
	ctx, settled := interruptible(ctx)
	defer settled()
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(settings), clickhouse.WithColumnNamesAndTypes(types))
	batch, err := w.conn.PrepareBatch(ctx, fmt.Sprintf("INSERT INTO %s (%s)", s.name(""), strings.Join(quoteAll(columns), ", ")))
	if err != nil {
		return classify("insert", err, false)
	}
	defer batch.Close() // after Send it does nothing
	for _, r := range rows {
		if err := batch.Append(r.Values...); err != nil {
			// Every value was tried before: the table's column is of another type.
			return &sinks.Error{Class: sinks.Pause, Op: "insert", Hint: "the table was altered after the start",
				Err: errors.New("a column does not take its value")}
		}
	}
	if err := batch.Send(); err != nil {
		return classify("insert", err, true)
	}
	return nil
}

// interruptible returns a context that ends with ctx until settled is called, and
// never afterwards. The client library watches a batch's context from a
// goroutine that may still see it end after the batch is done, and would then
// close a connection that is back in the pool.
func interruptible(ctx context.Context) (inner context.Context, settled func() bool) {
	inner, interrupt := context.WithCancelCause(context.WithoutCancel(ctx))
	return inner, context.AfterFunc(ctx, func() { interrupt(context.Cause(ctx)) })
}

// token is the same for the same changes.
func token(rows []batch.Row) string {
	h := sha256.New()
	for _, r := range rows {
		h.Write([]byte(r.Key)) // keys are of one length
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
