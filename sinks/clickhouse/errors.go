package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// overloadPause is how long a server that has too much to do is left alone.
const overloadPause = 5 * time.Second

// verdicts follows src/Common/ErrorCodes.cpp of ClickHouse. Codes that are not
// listed may lie in the data or in the server: RetryBounded, after splitting.
var verdicts = func() map[int32]sqlsink.Verdict {
	m := map[int32]sqlsink.Verdict{}
	add := func(v sqlsink.Verdict, codes ...int32) {
		for _, code := range codes {
			m[code] = v
		}
	}
	// Authentication and rights: UNKNOWN_USER, WRONG_PASSWORD, REQUIRED_PASSWORD,
	// IP_ADDRESS_NOT_ALLOWED, AUTHENTICATION_FAILED; DATABASE_ACCESS_DENIED, READONLY, ACCESS_DENIED, UNKNOWN_ROLE.
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "check user and password"}, 192, 193, 194, 195, 516)
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "grant the user what it lacks"}, 291, 164, 497, 511)
	// UNKNOWN_TABLE, TABLE_IS_DROPPED; UNKNOWN_DATABASE.
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "create the table, or let create do it at the next start"}, 60, 218)
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "create the database"}, 81)
	// THERE_IS_NO_COLUMN, NOT_FOUND_COLUMN_IN_BLOCK, NO_SUCH_COLUMN_IN_TABLE,
	// NUMBER_OF_COLUMNS_DOESNT_MATCH, UNKNOWN_IDENTIFIER, NOT_IMPLEMENTED, SYNTAX_ERROR.
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "the table does not fit the configuration"}, 8, 10, 16, 20, 47, 48, 62)
	// UNKNOWN_SETTING, SETTING_CONSTRAINT_VIOLATION.
	add(sqlsink.Verdict{Class: sinks.Pause, Hint: "check the settings in the URL"}, 115, 452)
	// TOO_MANY_SIMULTANEOUS_QUERIES, QUOTA_EXCEEDED,
	// NOT_ENOUGH_SPACE, SERVER_OVERLOADED; TOO_MANY_PARTS, which is about a table.
	add(sqlsink.Verdict{Class: sinks.Retry, Wait: overloadPause, Unreachable: true}, 202, 201, 243, 745)
	add(sqlsink.Verdict{Class: sinks.Retry, Wait: overloadPause}, 252)
	// CANNOT_ALLOCATE_MEMORY, MEMORY_LIMIT_EXCEEDED: of the statement, the user or the server.
	add(sqlsink.Verdict{Class: sinks.Retry, Wait: overloadPause, Much: true}, 173, 241)
	// TOO_MANY_ROWS, TIMEOUT_EXCEEDED, TOO_SLOW, TOO_MANY_BYTES, TOO_MANY_ROWS_OR_BYTES: the
	// server's or the user's limits of one statement.
	add(sqlsink.Verdict{Class: sinks.RetryBounded, Much: true}, 158, 159, 160, 307, 396)
	// Files, network, replication, cancellation, shutdown.
	add(sqlsink.Verdict{Class: sinks.Retry}, 32, 74, 75, 76, 101, 203, 209, 210, 225, 236, 242, 279, 285, 286,
		319, 373, 394, 425, 439, 517, 999, 1000, 1001, 1002)
	// CANNOT_PARSE_*, TYPE_MISMATCH, ARGUMENT_OUT_OF_BOUND, CANNOT_CONVERT_TYPE,
	// INCORRECT_DATA, TOO_LARGE_STRING_SIZE, VALUE_IS_OUT_OF_RANGE,
	// CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN, FUNCTION_THROW_IF_VALUE_IS_NON_ZERO,
	// DECIMAL_OVERFLOW, VIOLATED_CONSTRAINT.
	add(sqlsink.Verdict{Class: sinks.Reject}, 6, 26, 27, 38, 41, 53, 69, 70, 72, 117, 131, 321, 349, 395, 407, 469)
	return m
}()

var constraintName = regexp.MustCompile("Constraint `[^`]*`")

// classify sorts an error. sent reports whether rows may have reached the server. A failure of
// class Reject or RetryBounded may concern a single row only.
func classify(op string, err error, sent bool) *sinks.Error {
	if classified, ok := errors.AsType[*sinks.Error](err); ok {
		return classified
	}
	e := &sinks.Error{Op: op, Err: reason.Of(err), Ambiguous: sent}
	exception, ok := errors.AsType[*clickhouse.Exception](err)
	if !ok {
		e.Class = sinks.Retry
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			e.Unreachable, e.Ambiguous = true, false
		}
		if answer, ok := errors.AsType[*clickhouse.HTTPError](err); ok {
			e.Err = reason.New(err, fmt.Sprintf("HTTP status %d", answer.StatusCode), "")
			switch answer.StatusCode {
			case http.StatusUnauthorized, http.StatusForbidden:
				e.Class, e.Hint = sinks.Pause, "check user and password"
			case http.StatusNotFound:
				e.Class, e.Hint = sinks.Pause, "check the URL"
			case http.StatusRequestEntityTooLarge: // sent by a proxy; a smaller batch passes
				e.Class, e.Hint = sinks.RetryBounded, "a proxy limits the size of a request"
			}
			e.Ambiguous = sent && e.Class != sinks.Pause
		}
		return e
	}

	code, message := exception.Code, exception.Message
	v, known := verdicts[code]
	switch {
	// Not the state of the table but this batch: a smaller one goes through.
	case code == 252 && strings.Contains(message, "single INSERT block"), !known:
		v = sqlsink.Verdict{Class: sinks.RetryBounded}
	}
	if v.Much && perStatement.MatchString(message) {
		v.Class = sinks.RetryBounded // the server answered about this statement
	}
	if !v.Much && (v.Class == sinks.Reject || v.Class == sinks.RetryBounded) {
		// Such messages quote values.
		message = strings.Join([]string{sqlsink.Refused, exception.CodeName, constraintName.FindString(message)}, " ")
	}
	v.Ambiguous = sent && v.Class != sinks.Reject && v.Class != sinks.Pause
	return v.Error(op, refusedBy(exception, message))
}

// perStatement is a limit of memory that is this statement's alone.
var perStatement = regexp.MustCompile(`(?i)for query|query memory limit`)

// refusedBy is the server's refusal in words that hold no value of a row. The exception
// behind it, whose text may hold one, is reached with errors.As.
func refusedBy(exception *clickhouse.Exception, message string) error {
	return reason.New(exception, message, fmt.Sprint("code ", exception.Code))
}

var (
	// quotedValue is a value in a message, or all of a row's, or a table's id.
	quotedValue = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.)*'|Column values:.*| ?\([0-9a-f-]{36}\)`)
	digits      = regexp.MustCompile(`\d+`)
)

// blame adds to the refusal of a single row the server's text, without the row's values.
func blame(_ context.Context, r batch.Row, e *sinks.Error) {
	exception, ok := errors.AsType[*clickhouse.Exception](e)
	if !ok || !strings.HasPrefix(e.Err.Error(), sqlsink.Refused) {
		return
	}
	text := reason.Mask(quotedValue.ReplaceAllString(exception.Message, "…"), r.Doc, r.Entity)
	e.Err = refusedBy(exception, fmt.Sprintf("%s %s: %s", sqlsink.Refused, exception.CodeName, digits.ReplaceAllString(text, "…")))
}

// refusal classifies refusals of the server by the refusing object.
func refusal(err error) (same, hint string) {
	exception, ok := errors.AsType[*clickhouse.Exception](err)
	if !ok {
		return "", ""
	}
	constraint := constraintName.FindString(exception.Message)
	if constraint != "" {
		hint = constraint + " of the table refuses every change"
	}
	return fmt.Sprint(exception.Code, constraint), hint
}
