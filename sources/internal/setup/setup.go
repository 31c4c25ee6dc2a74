// Package setup tells faults of a source's PostgreSQL database that last from outages.
package setup

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/reason"
)

// Error is a fault that no waiting mends: a table, a column or a right that is not there, or
// a login that is refused.
type Error struct {
	Kind string // of the source
	Err  error
}

// Error returns the cause, with the kind of source before it.
func (e *Error) Error() string { return e.Kind + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an *Error.
func Errorf(kind, format string, args ...any) error { return &Error{kind, fmt.Errorf(format, args...)} }

// lasting are the classes of SQLSTATE of an Error: a name, a type or a right; a database; a
// schema; a login. A statement that this kind of table does not have.
var lasting = []string{"42", "3D", "3F", "28", "0A"}

// Classify returns a server's error in bounded words, as an *Error if it lasts, and any other
// error in words without secrets.
func Classify(kind string, err error) error {
	var server *pgconn.PgError
	var fault *Error
	switch {
	case err == nil, errors.As(err, &fault):
		return err
	case !errors.As(err, &server):
		return reason.Of(err)
	}
	err = reason.New(err, server.Message, "SQLSTATE "+server.Code)
	if len(server.Code) > 2 && slices.Contains(lasting, server.Code[:2]) {
		return &Error{kind, err}
	}
	return err
}
