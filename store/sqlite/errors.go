package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/seed-86dfc502/weir/store"
)

// ErrFull says that the file cannot grow.
var ErrFull = errors.New("the disk is full")

// primary returns the primary result code of err (sqlite.org/rescode.html).
func primary(err error) (code int, ok bool) {
	code = extended(err)
	return code & 0xff, code != 0
}

// extended returns the extended result code of err; 0: it has none.
func extended(err error) int {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Code()
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
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return store.WithClass(fmt.Errorf("%w: %w", ErrDamaged, err), store.Fatal)
	case sqlite3.SQLITE_IOERR:
		if extended(err) == sqlite3.SQLITE_IOERR_DATA {
			return store.WithClass(fmt.Errorf("%w: %w", ErrDamaged, err), store.Fatal)
		}
	case sqlite3.SQLITE_FULL:
		return store.WithClass(fmt.Errorf("%w, nothing was written: %w", ErrFull, err), store.Retry)
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return store.WithClass(err, store.Poison)
	case sqlite3.SQLITE_ERROR, // no such table, syntax
		sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISUSE:
		return store.WithClass(err, store.Fatal)
	}
	return store.WithClass(err, store.Retry)
}

// failedCommit sorts an error of COMMIT: after a failed write or sync, pages
// of it may yet be found when the file is opened again.
func failedCommit(operation string, err error) error {
	if code, ok := primary(err); ok && code != sqlite3.SQLITE_IOERR {
		return failed(operation, err)
	}
	return store.WithClass(fmt.Errorf("sqlite: %s: commit: %w", operation, err), store.Unknown)
}

// holdable refuses an entity id that PostgreSQL would refuse: what one store
// holds, the other must too.
func holdable(id string) error {
	if utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 {
		return nil
	}
	return store.WithClass(errors.New("sqlite: an entity id holds a NUL or invalid UTF-8"), store.Poison)
}
