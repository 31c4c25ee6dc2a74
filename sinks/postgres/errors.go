package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// quoted is a value in a message of class 22, in the quotes of the server's language. It may hold
// quotes of its own.
var quoted = regexp.MustCompile(`(?s)["«»„“”].*["«»„“”]`)

// verdicts by SQLSTATE, or its class (PostgreSQL manual, appendix A). Cancelled statements,
// locks and deadlocks are about a table. A server that takes no work is unreachable.
var verdicts = map[string]sqlsink.Verdict{
	"08": {Class: sinks.Retry, Ambiguous: true},
	"0A": {Class: sinks.Pause, Hint: unfit},
	"22": {Class: sinks.Reject},
	"22P05": {Class: sinks.Reject,
		Hint: `a text with \u0000 or a character that the database's encoding lacks; leave it out of the projection, or of columns`},
	"23":    {Class: sinks.Reject},
	"23503": {Class: sinks.RetryBounded}, // the row that it refers to may come later
	"25":    {Class: sinks.Retry},
	"25006": {Class: sinks.Retry, Unreachable: true, Hint: "this server only reads: a standby?"},
	"26000": {Class: sinks.Retry}, "34000": {Class: sinks.Retry}, "42P03": {Class: sinks.Retry}, "42P05": {Class: sinks.Retry}, // of the session
	"28":    {Class: sinks.Pause, Hint: "check user, password and pg_hba.conf"},
	"3D000": {Class: sinks.Pause, Hint: "create the database"},
	"3F":    {Class: sinks.Pause, Hint: unfit},
	"3F000": {Class: sinks.Pause, Hint: missing},
	"40":    {Class: sinks.Retry},
	"40003": {Class: sinks.Retry, Ambiguous: true},
	"42":    {Class: sinks.Pause, Hint: unfit},
	"42501": {Class: sinks.Pause, Hint: "grant the user what it lacks"},
	"42P01": {Class: sinks.Pause, Hint: missing},
	"53":    {Class: sinks.Retry},
	"53100": {Class: sinks.Retry, Unreachable: true}, // disk full
	"53200": {Class: sinks.Retry, Much: true},        // memory
	"53300": {Class: sinks.Retry, Unreachable: true}, // too many connections
	"53400": {Class: sinks.Retry, Much: true},        // a limit
	"54":    {Class: sinks.Reject},
	"55":    {Class: sinks.Retry},
	"55P03": {Class: sinks.Retry, Much: true}, // a lock
	// The session ended. The outcome of the commit is unknown.
	"57": {Class: sinks.Retry, Ambiguous: true},
	"57014": {Class: sinks.RetryBounded, Ambiguous: true, Much: true,
		Hint: "the server's statement_timeout, or an operator, cancelled the statement"},
	"57P01": {Class: sinks.Retry, Ambiguous: true},
	"57P02": {Class: sinks.Retry, Ambiguous: true},
	"57P03": {Class: sinks.Retry, Unreachable: true},
	"58":    {Class: sinks.Retry},
	"XX":    {Class: sinks.RetryBounded},
}

const (
	unfit   = "the table does not fit the configuration"
	missing = "create the table, or let create do it at the next start"
)

// startupParameter is the hint for a parameter that a pooler does not take.
const startupParameter = "the pooler takes no such parameter: leave it out of the URL, or name it in ignore_startup_parameters"

// classify sorts an error by its SQLSTATE. A failure of class Reject or RetryBounded may concern
// a single row only.
func classify(op string, err error) *sinks.Error {
	if classified, ok := errors.AsType[*sinks.Error](err); ok {
		return classified
	}
	e := &sinks.Error{Op: op, Err: err}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		// The connection: lost before anything was sent, or at any time after.
		_, dialling := errors.AsType[*pgconn.ConnectError](err)
		e.Class, e.Unreachable, e.Err = sinks.Retry, dialling || pgconn.SafeToRetry(err), reason.Of(err)
		e.Ambiguous = !e.Unreachable
		return e
	}

	message, class := pgErr.Message, pgErr.Code[:min(2, len(pgErr.Code))]
	v, known := verdicts[pgErr.Code]
	if !known {
		v, known = verdicts[class]
	}
	switch {
	case pgErr.Routine == "exec_stmt_raise":
		// A trigger or function of the customer's, whose text may hold values anywhere: it
		// may refuse this row or this hour.
		v, message = sqlsink.Verdict{Class: sinks.RetryBounded}, sqlsink.Refused
		if class == "22" || class == "23" {
			v.Class = sinks.Reject
		}
	case !known:
		v, message = sqlsink.Verdict{Class: sinks.RetryBounded}, sqlsink.Refused
	case class == "22", class == "XX":
		message = quoted.ReplaceAllString(message, `"…"`)
	case pgErr.Code == "23514" && strings.Contains(message, "no partition of relation"):
		v = sqlsink.Verdict{Class: sinks.Retry, Hint: "the table has no partition for the month of changed_at"}
	case pgErr.Code == "08P01" && strings.Contains(message, "startup parameter"):
		v = sqlsink.Verdict{Class: sinks.Pause, Hint: startupParameter}
	}
	return v.Error(op, refusedBy(pgErr, message))
}

// refusedBy is a server's refusal in words that hold no value of a row. The
// *pgconn.PgError behind it, whose text may hold one, is reached with errors.As.
func refusedBy(pgErr *pgconn.PgError, message string) error {
	return reason.New(pgErr, message, "SQLSTATE "+pgErr.Code)
}

// digits of a number that a trigger may have spelled in another way.
var digits = regexp.MustCompile(`\d+`)

// blame adds to the refusal of a single row the text of the customer's trigger, without
// the row's values, or which typed columns do not take theirs.
func (s *Sink) blame(ctx context.Context, pool *pgpool.Pool, r batch.Row, e *sinks.Error) {
	if pgErr, ok := errors.AsType[*pgconn.PgError](e); ok && strings.HasPrefix(e.Err.Error(), sqlsink.Refused) {
		message := digits.ReplaceAllString(reason.Mask(quoted.ReplaceAllString(pgErr.Message, `"…"`), r.Doc), "…")
		e.Err = refusedBy(pgErr, sqlsink.Refused+": "+message)
	}
	if e.Class == sinks.Reject && r.Op == change.Upsert {
		s.findBadColumn(ctx, pool, r, e)
	}
}

// refusal classifies refusals of the server by the refusing object.
func refusal(err error) (same, hint string) {
	if errors.Is(err, errSwallowed) {
		return "swallowed", "a trigger or a rule of the table leaves every row out"
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok:
		return "", ""
	case pgErr.ConstraintName != "":
		hint = fmt.Sprintf("constraint %s of the table refuses every change", quote(pgErr.ConstraintName))
	case pgErr.ColumnName != "":
		hint = fmt.Sprintf("column %s of the table refuses every change", quote(pgErr.ColumnName))
	}
	return fmt.Sprintf("%q", []string{pgErr.Code, pgErr.TableName, pgErr.ColumnName, pgErr.ConstraintName}), hint
}
