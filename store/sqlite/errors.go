package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/seed-86dfc502/weir/store"
)

// ErrFull says that the file cannot grow.
var ErrFull = errors.New("the disk is full")

// primary returns the primary result code of err (sqlite.org/rescode.html).
func primary(err error) (code sqlite3.ErrorCode, ok bool) {
	ok = errors.As(err, &code)
	return code, ok
}

// classify sorts an error that left nothing written. A code that is not listed is
// Retry, which loses nothing.
func classify(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return store.ErrNotFound
	}
	code, ok := primary(err)
	if !ok {
		return err // context: Retry; or sorted already
	}
	switch code {
	case sqlite3.CORRUPT, sqlite3.NOTADB:
		return store.WithClass(fmt.Errorf("%w: %w", ErrDamaged, err), store.Fatal)
	case sqlite3.IOERR:
		if errors.Is(err, sqlite3.IOERR_DATA) {
			return store.WithClass(fmt.Errorf("%w: %w", ErrDamaged, err), store.Fatal)
		}
	case sqlite3.FULL:
		return store.WithClass(fmt.Errorf("%w, nothing was written: %w", ErrFull, err), store.Retry)
	case sqlite3.CONSTRAINT, sqlite3.TOOBIG, sqlite3.MISMATCH:
		return store.WithClass(err, store.Poison)
	case sqlite3.ERROR, // no such table, syntax
		sqlite3.PERM, sqlite3.READONLY, sqlite3.AUTH, sqlite3.MISUSE:
		return store.WithClass(err, store.Fatal)
	}
	return store.WithClass(err, store.Retry)
}

// failedCommit sorts an error of COMMIT: after a failed write or sync, pages
// of it may yet be found when the file is opened again.
func failedCommit(operation string, err error) error {
	if code, ok := primary(err); ok && code != sqlite3.IOERR {
		return failed(operation, err)
	}
	return store.WithClass(fmt.Errorf("sqlite: %s: commit: %w", operation, err), store.Unknown)
}
