package sqlsink

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// SuffixCurrent makes the name of the view of current rows from the table's.
const SuffixCurrent = "_current"

// Content returns the columns that hold the document: the declared ones, or doc of a type.
func Content(declared config.Columns, doc string) config.Columns {
	if len(declared) > 0 {
		return declared
	}
	return config.Columns{{Name: "doc", Type: doc}}
}

// ViewColumns are the columns of the view of current rows, content among them.
func ViewColumns(content config.Columns) []string {
	names := []string{"service", "entity", "version", "key", "changed_at", "synced_at"}
	for _, c := range content {
		names = append(names, c.Name)
	}
	return names
}

// Schema is a table of a sink and the view of its current rows, as a database has them. The
// functions ask the database, Create and CreateView change it. A fault is a few words about
// an object that does not fit.
type Schema struct {
	Table, View string // quoted
	MayCreate   bool

	Exists     func(suffix string) (bool, error)
	Create     func() error
	Faults     func() ([]string, error)
	CreateView func(columns []string) error
	// Missing returns which of some columns the view lacks. Without it there is no view.
	Missing func(columns []string) ([]string, error)
}

// Prepare creates missing objects, if that is allowed, and checks all of them. Faults are one
// error of class Pause.
func (s *Schema) Prepare(content config.Columns) error {
	exists, err := s.Exists("")
	switch {
	case err != nil:
		return err
	case exists:
	case !s.MayCreate:
		return &sinks.Error{Class: sinks.Pause, Op: "open", Hint: "create it, or set create: true", Err: fmt.Errorf("there is no table %s", s.Table)}
	default:
		if err := s.Create(); err != nil {
			return err
		}
	}
	wrong, err := s.Faults()
	if err != nil {
		return err
	}
	if s.Missing != nil {
		more, err := s.prepareView(ViewColumns(content), s.MayCreate && len(wrong) == 0)
		if err != nil {
			return err
		}
		wrong = append(wrong, more...)
	}
	if len(wrong) > 0 {
		return &sinks.Error{Class: sinks.Pause, Op: "open", Hint: "alter the table, or use another one",
			Err: fmt.Errorf("table %s does not fit: %s", s.Table, strings.Join(wrong, "; "))}
	}
	return nil
}

// prepareView creates the view if it is missing, and else returns its faults. It may be missing.
func (s *Schema) prepareView(columns []string, create bool) (wrong []string, err error) {
	exists, err := s.Exists(SuffixCurrent)
	if err != nil || !exists && !create {
		return nil, err
	}
	if !exists {
		return nil, s.CreateView(columns)
	}
	missing, err := s.Missing(slices.Clone(columns))
	if len(missing) > 0 {
		wrong = append(wrong, fmt.Sprintf("view %s lacks %s; drop it, and it is created again", s.View, strings.Join(missing, ", ")))
	}
	return wrong, err
}
