package postgres

import (
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/store"
)

// SQLSTATEs that weir_expect raises: another process moved a row, or another revision is
// active.
const (
	codeMoved      = "WF001"
	codeSuperseded = "WF002"
)

// classify sorts an error that left nothing written by its SQLSTATE
// (PostgreSQL manual, appendix A). A code that is not listed is Retry, which loses
// nothing.
func classify(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return store.ErrNotFound
	}
	if errors.Is(err, errDropped) {
		return store.WithClass(err, store.Fatal)
	}
	pg := pgError(err)
	if pg == nil || len(pg.Code) != 5 {
		return err // connection, context: Retry; or sorted already
	}
	switch pg.Code {
	case codeMoved:
		return fmt.Errorf("%w: %w", store.ErrFenced, err)
	case codeSuperseded:
		return fmt.Errorf("%w: %w", store.ErrSuperseded, err)
	}
	if slices.Contains(ofAnotherSession, pg.Code) {
		class := store.Retry
		if poolerRefused(pg) {
			class = store.Fatal
		}
		return store.WithClass(fmt.Errorf("%w: %s", err, pooledKey), class)
	}
	switch pg.Code[:2] {
	case "22", // data exception: NUL in a text, invalid JSON, …
		"23", // integrity; unique violations that races cause are handled where they may occur
		"54": // program limit: a key too long for its index, nesting too deep
		return store.WithClass(err, store.Poison)
	case "28", // authorization
		"3D", "3F", // no such database or schema
		"42", // missing table, no permission, syntax
		"P0", // raised by a trigger
		"XX": // internal error, corruption
		return store.WithClass(err, store.Fatal)
	}
	return store.WithClass(err, store.Retry)
}

// classifyCommit sorts an error of a pipeline whose last statement is COMMIT.
// Only an error that the server reported and survived says for certain that
// nothing was committed: a FATAL one may come after the commit, before its
// answer. A batch that broke while its statements were prepared was never sent.
func classifyCommit(err error) error {
	if err == nil {
		return nil
	}
	if pg := pgError(err); pg != nil && pg.SeverityUnlocalized == "ERROR" {
		return classify(err)
	}
	if errors.Is(err, errRolledBack) || pgconn.SafeToRetry(err) || errors.As(err, new(pgx.ErrPreprocessingBatch)) {
		return store.WithClass(err, store.Retry)
	}
	return store.WithClass(err, store.Unknown)
}
