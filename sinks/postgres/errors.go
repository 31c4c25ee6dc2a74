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
	if errors.Is(err, pgpool.ErrPooled) {
		e.Class = sinks.Pause
		return e
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		// The connection: lost before anything was sent, or at any time after.
		e.Class, e.Ambiguous, e.Outage = sinks.Retry, !pgconn.SafeToRetry(err), sinks.Troubled
		e.Err = reason.Of(err)
		if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
			e.Ambiguous, e.Outage = false, sinks.Unreachable
		}
		return e
	}

	message := pgErr.Message
	state := pgErr.Code
	class := state[:min(2, len(state))]
	much := false
	switch {
	case pgErr.Routine == "exec_stmt_raise":
		// A trigger or function of the customer's, whose text may hold values anywhere: it
		// may refuse this row or this hour.
		e.Class, message = sinks.RetryBounded, sqlsink.Refused
		if class == "22" || class == "23" {
			e.Class = sinks.Reject
		}
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
	case state == "57014":
		e.Class, e.Ambiguous, much = sinks.RetryBounded, true, true
		e.Hint = "the server's statement_timeout, or an operator, cancelled the statement"
	case state == "53200", state == "53400", state == "55P03": // memory, a limit, a lock
		e.Class, much = sinks.Retry, true
	case state == "08P01" && strings.Contains(message, "startup parameter"):
		e.Class, e.Hint = sinks.Pause, "the pooler takes no such parameter: leave it out of the URL, or name it in ignore_startup_parameters"
	case class == "08", class == "57":
		// The session ended; whether the commit was through is not known.
		e.Class, e.Ambiguous = sinks.Retry, state != "57P03"
	case class == "25", class == "40", class == "53", class == "55", class == "58", pgpool.SessionError(pgErr):
		e.Class, e.Ambiguous = sinks.Retry, state == "40003"
	case class == "28":
		e.Class, e.Hint = sinks.Pause, "check user, password and pg_hba.conf"
	case state == "3D000":
		e.Class, e.Hint = sinks.Pause, "create the database"
	case state == "42501":
		e.Class, e.Hint = sinks.Pause, "grant the user what it lacks"
	case state == "42P01", state == "3F000":
		e.Class, e.Hint = sinks.Pause, "create the table, or let create do it at the next start"
	case class == "42", class == "3F", class == "0A":
		e.Class, e.Hint = sinks.Pause, "the table does not fit the configuration"
	case class == "XX":
		e.Class, message = sinks.RetryBounded, quoted.ReplaceAllString(message, `"…"`)
	default:
		e.Class, message = sinks.RetryBounded, sqlsink.Refused
	}
	e.Outage = outages[state]
	if e.Outage == sinks.NoOutage {
		e.Outage = outages[class]
	}
	if much {
		e.Outage = sinks.NoOutage
	}
	e.Err = refusedBy(pgErr, message)
	if much {
		return batch.TooMuch(e)
	}
	return e
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

// refusal tells refusals of the server apart by what refuses.
func refusal(err error) (same, hint string) {
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
