package postgres

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/sinks"
)

// refused is a server's refusal in words that hold no value of a row. The
// *pgconn.PgError behind it, whose text may hold one, is reached with errors.As.
type refused struct {
	text string
	err  *pgconn.PgError
}

func (r *refused) Error() string { return r.text }
func (r *refused) Unwrap() error { return r.err }

// quoted is a value in a message of class 22, in the quotes of the server's language;
// it may hold quotes of its own.
var quoted = regexp.MustCompile(`(?s)["«»„“”].*["«»„“”]`)

// outages are the SQLSTATEs, and classes of them, that say something about the server.
// Cancelled statements, locks and deadlocks are about a table.
var outages = map[string]sinks.Outage{
	"08": sinks.Unreachable, "57P01": sinks.Unreachable, "57P02": sinks.Unreachable, "57P03": sinks.Unreachable,
	"53300": sinks.Unreachable, // too many connections
	"53":    sinks.Troubled, "58": sinks.Troubled, "25006": sinks.Troubled,
}

// classify sorts an error by its SQLSTATE (PostgreSQL manual, appendix A). A
// failure of class Reject or RetryBounded may be that of a single row.
func classify(op string, err error) *sinks.Error {
	if classified, ok := errors.AsType[*sinks.Error](err); ok {
		return classified
	}
	e := &sinks.Error{Op: op, Err: err}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		// The connection: lost before anything was sent, or at any time after.
		e.Class, e.Ambiguous, e.Outage = sinks.Retry, !pgconn.SafeToRetry(err), sinks.Troubled
		if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			e.Ambiguous, e.Outage = false, sinks.Unreachable
		}
		return e
	}

	message := pgErr.Message
	state := pgErr.Code
	class := state[:min(2, len(state))]
	switch {
	case class == "22":
		e.Class, message = sinks.Reject, quoted.ReplaceAllString(message, `"…"`)
		if state == "22P05" {
			e.Hint = `a text with \u0000 or a character that the database's encoding lacks; leave it out of the projection, or of columns`
		}
	case state == "23503":
		// The row that it refers to may come later.
		e.Class = sinks.RetryBounded
	case state == "23514" && strings.Contains(message, "no partition of relation"):
		e.Class, e.Hint = sinks.Retry, "the table has no partition for the month of changed_at"
	case class == "23", class == "54":
		e.Class = sinks.Reject
	case state == "25006":
		e.Class, e.Hint = sinks.Retry, "this server only reads: a standby?"
	case class == "08", class == "57":
		// The session ended; whether the commit was through is not known.
		e.Class, e.Ambiguous = sinks.Retry, state != "57P03"
	case class == "40", class == "53", class == "55", class == "58", state == "26000":
		e.Class, e.Ambiguous = sinks.Retry, state == "40003"
	case class == "28":
		e.Class, e.Hint = sinks.Pause, "check user, password and pg_hba.conf"
	case state == "3D000":
		e.Class, e.Hint = sinks.Pause, "create the database"
	case state == "42501":
		e.Class, e.Hint = sinks.Pause, "grant the user what it lacks"
	case state == "42P01", state == "3F000":
		e.Class, e.Hint = sinks.Pause, "create the table, or let create do it at the next start"
	case class == "42", class == "3F", class == "0A", class == "25":
		e.Class, e.Hint = sinks.Pause, "the table does not fit the configuration"
	case class == "XX":
		e.Class, message = sinks.RetryBounded, quoted.ReplaceAllString(message, `"…"`)
	default:
		// Somebody's trigger or function: it may be this row or this hour. Its text
		// may hold values anywhere.
		e.Class, message = sinks.RetryBounded, "refused by the server"
	}
	e.Outage = outages[state]
	if e.Outage == sinks.NoOutage {
		e.Outage = outages[class]
	}
	e.Err = &refused{text: fmt.Sprintf("%s (SQLSTATE %s)", message, state), err: pgErr}
	return e
}

// tookTooLong reports whether a statement met writeTimeout or the server's own time-out.
func tookTooLong(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "57014" || errors.Is(err, context.DeadlineExceeded)
}

// ofRow reports whether a smaller batch may find the row that is to blame.
func ofRow(e *sinks.Error) bool {
	return e.Class == sinks.Reject || e.Class == sinks.RetryBounded
}

// minWhole is how many changes must be refused alike for a refusal of the
// service as a whole.
const minWhole = 21

// refusedAsWhole takes the failures of all changes of a Write. When there are
// at least minWhole and the table refused every one for the same reason, as
// after a NOT NULL column was added to it, it returns one error of class Pause:
// dead letters without end would help nobody. Else it returns nil.
func refusedAsWhole(failed map[int]error) *sinks.Error {
	if len(failed) < minWhole {
		return nil
	}
	type reason struct{ state, table, column, constraint string }
	var common reason
	var example error
	for _, err := range failed {
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || sinks.Classify(err).Class != sinks.Reject {
			return nil
		}
		r := reason{pgErr.Code, pgErr.TableName, pgErr.ColumnName, pgErr.ConstraintName}
		if example == nil {
			common, example = r, err
		}
		if r != common {
			return nil
		}
	}
	hint := "the table refuses every change alike; was it altered?"
	switch {
	case common.constraint != "":
		hint = fmt.Sprintf("constraint %s of the table refuses every change", quote(common.constraint))
	case common.column != "":
		hint = fmt.Sprintf("column %s of the table refuses every change", quote(common.column))
	}
	return &sinks.Error{Class: sinks.Pause, Op: "insert", Hint: hint, Err: sinks.Classify(example).Err}
}
