package clickhouse

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"

	"github.com/ClickHouse/ch-go/proto"
	"github.com/ClickHouse/clickhouse-go/v2/lib/column"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

var (
	_ sinks.Scannable = (*Sink)(nil)
	_ sinks.Versioned = (*Sink)(nil)
)

// read calls work with what Open made, while the service holds one of the target's connections.
func (s *Sink) read(ctx context.Context, op string, work func(*session) error) error {
	if err := sqlsink.Read(ctx, s.server, &s.session, work); err != nil {
		return classify(op, err, false)
	}
	return nil
}

// Scan implements sinks.Scannable. It needs no FINAL: of several rows of an
// entity the one with the highest version counts, retractions included.
func (s *Sink) Scan(ctx context.Context, afterEntity string, limit int, visit func(sinks.TargetRow) error) error {
	doc := "''"
	if len(s.options.Columns) == 0 {
		doc = "argMax(doc, version)"
	}
	query := fmt.Sprintf(`SELECT toString(entity), max(version), argMax(is_deleted, version), %s FROM %s
WHERE service = ? AND entity > ? GROUP BY entity ORDER BY entity LIMIT %d`, doc, s.name(""), limit)
	var stop error // of visit
	err := s.read(ctx, "scan", func(opened *session) error {
		if opened.version.atLeast(aggregationInOrder) {
			query += " SETTINGS optimize_aggregation_in_order = 1"
		}
		rows, err := opened.conn.Query(ctx, query, s.options.Service, afterEntity)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var entity, text string
			var version uint64
			var deleted uint8
			if err := rows.Scan(&entity, &version, &deleted, &text); err != nil {
				return err
			}
			h := sinks.TargetRow{Entity: entity, Version: change.Version(version), Deleted: deleted != 0}
			if !h.Deleted && text != "" {
				h.Doc = []byte(text)
			}
			if stop = visit(h); stop != nil {
				return stop
			}
		}
		return rows.Err()
	})
	return cmp.Or(stop, err)
}

// Highest implements sinks.Versioned. It reads one column of the service.
func (s *Sink) Highest(ctx context.Context) (change.Version, error) {
	var version uint64
	err := s.read(ctx, "highest version", func(opened *session) error {
		return opened.conn.QueryRow(ctx, fmt.Sprintf("SELECT max(version) FROM %s WHERE service = ?", s.name("")), s.options.Service).Scan(&version)
	})
	return change.Version(version), err
}

// Compare implements sinks.Scannable.
func (s *Sink) Compare(ctx context.Context, expected []sinks.Expected) (map[string][]string, error) {
	differing := map[string][]string{}
	if len(expected) == 0 || len(s.options.Columns) == 0 {
		return differing, nil
	}
	err := s.read(ctx, "compare", func(opened *session) error { return s.compare(ctx, opened, expected, differing) })
	return differing, err
}

// compare reads all rows of the range: repetitions of one may not be merged yet.
func (s *Sink) compare(ctx context.Context, opened *session, expected []sinks.Expected, differing map[string][]string) error {
	wanted := make(map[string]sinks.Expected, len(expected))
	for _, e := range expected {
		wanted[e.Entity] = e
	}
	selected := []string{"entity", "version"}
	trial := make([]column.Interface, len(s.options.Columns))
	for i, c := range s.options.Columns {
		name, t := "`"+c.Name+"`", opened.types[c.Name]
		if strings.Count(t, "Tuple(") > 1 {
			t = named(t)
			name = fmt.Sprintf("CAST(%s AS %s)", name, t)
		}
		selected = append(selected, name)
		var err error
		if trial[i], err = libraryColumn(t); err != nil {
			return err
		}
	}
	rows, err := opened.conn.Query(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE service = ? AND entity >= ? AND entity <= ? AND is_deleted = 0",
		strings.Join(selected, ", "), s.name("")), s.options.Service, expected[0].Entity, expected[len(expected)-1].Entity)
	if err != nil {
		return err
	}
	defer rows.Close()
	var entity string
	var version uint64
	values := []any{&entity, &version}
	for _, t := range rows.ColumnTypes()[len(values):] {
		values = append(values, reflect.New(t.ScanType()).Interface())
	}
	for rows.Next() {
		if err := rows.Scan(values...); err != nil {
			return err
		}
		e, ok := wanted[entity]
		if !ok || uint64(e.Version) != version {
			continue
		}
		converted, err := s.convert(e.Doc, trial)
		if err != nil {
			continue // the columns no longer take it
		}
		columns := make([]*string, len(trial))
		others := make([]*string, len(trial))
		for i := range trial {
			held := reflect.ValueOf(values[len(values)-len(trial)+i]).Elem().Interface()
			if columns[i], others[i], err = asRead(trial[i], held, converted[i]); err != nil {
				return fmt.Errorf("column %s: %w", s.options.Columns[i].Name, err)
			}
		}
		differing[entity] = append(differing[entity], sqlsink.Differing(s.options.Columns, e, columns, others)...)
	}
	return rows.Err()
}

// asRead returns two values of a column as JSON, both in the form in which the library reads
// the column: time zones and containers are alike then.
func asRead(c column.Interface, held, wanted any) (left, right *string, err error) {
	c.Reset()
	if err := errors.Join(c.AppendRow(held), c.AppendRow(wanted)); err != nil {
		return nil, nil, err
	}
	// As over the wire: rows of LowCardinality can be read only afterwards.
	var wire proto.Buffer
	c.Encode(&wire)
	c.Reset()
	if err := c.Decode(proto.NewReader(bytes.NewReader(wire.Buf)), 2); err != nil {
		return nil, nil, err
	}
	text := func(row int) *string {
		value := reflect.New(c.ScanType())
		var encoded []byte
		if scanErr := c.ScanRow(value.Interface(), row); scanErr != nil {
			err = errors.Join(err, scanErr)
		}
		encoded, jsonErr := json.Marshal(value.Interface())
		if jsonErr != nil {
			encoded, jsonErr = json.Marshal(finite(value))
		}
		err = errors.Join(err, jsonErr)
		return new(string(encoded))
	}
	return text(0), text(1), err
}

// finite is a value in which words take the place of numbers that JSON lacks, such as NaN.
func finite(v reflect.Value) any {
	switch v.Interface().(type) {
	case json.Marshaler, encoding.TextMarshaler:
		return v.Interface()
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Sprint(f)
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return finite(v.Elem())
	case reflect.Slice, reflect.Array:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = finite(v.Index(i))
		}
		return list
	case reflect.Map:
		members := make(map[string]any, v.Len())
		for _, key := range v.MapKeys() {
			members[fmt.Sprint(key)] = finite(v.MapIndex(key))
		}
		return members
	}
	return v.Interface()
}

// DeleteStatement implements sinks.Scannable.
func (s *Sink) DeleteStatement(entity string) string {
	return fmt.Sprintf("ALTER TABLE %s DELETE WHERE service = %s AND entity = %s", s.name(""), text(s.options.Service), text(entity))
}

// text is a literal of ClickHouse's SQL.
func text(s string) string {
	return "'" + strings.NewReplacer("\\", "\\\\", "'", "\\'").Replace(s) + "'"
}
