-- +goose Up

-- Long operations of operators, to be resumed after a kill.
CREATE TABLE jobs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    parameters TEXT    NOT NULL,
    cursor     BLOB,
    done       INTEGER NOT NULL DEFAULT 0,
    total      INTEGER NOT NULL DEFAULT 0,
    state      TEXT    NOT NULL DEFAULT 'open',
    actor      TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    turn       INTEGER NOT NULL DEFAULT 1
) STRICT;

-- The same work is open once.
CREATE UNIQUE INDEX jobs_open ON jobs (kind, key) WHERE state = 'open';

-- +goose Down
DROP TABLE jobs;
