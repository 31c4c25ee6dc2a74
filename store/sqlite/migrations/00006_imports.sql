-- +goose Up

-- Files that are taken into a source, and how far each is.
CREATE TABLE imports (
    id          BLOB PRIMARY KEY,              -- UUIDv7: its order is that of creation
    tenant      TEXT    NOT NULL,
    source      TEXT    NOT NULL,
    format      TEXT    NOT NULL,
    options     TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    fingerprint BLOB,                          -- null while the file comes in
    bytes       INTEGER NOT NULL DEFAULT 0,
    chunks      INTEGER NOT NULL DEFAULT 0,
    next_chunk  INTEGER NOT NULL DEFAULT 0,
    rows_behind INTEGER NOT NULL DEFAULT 0,
    cursor      BLOB,
    accepted    INTEGER NOT NULL DEFAULT 0,
    duplicate   INTEGER NOT NULL DEFAULT 0,
    invalid     INTEGER NOT NULL DEFAULT 0,
    conflicting INTEGER NOT NULL DEFAULT 0,
    state       TEXT    NOT NULL DEFAULT 'receiving',
    failure     TEXT    NOT NULL DEFAULT '',
    actor       TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    sealed      INTEGER,                       -- the order of completed files
    attempt     INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER
) STRICT;
CREATE INDEX imports_open ON imports (source, sealed) WHERE state IN ('queued', 'running');
CREATE INDEX imports_tenant ON imports (tenant, id);
CREATE INDEX imports_file ON imports (tenant, fingerprint) WHERE fingerprint IS NOT NULL;
CREATE INDEX imports_seals ON imports (sealed) WHERE sealed IS NOT NULL;

-- Chunks are compressed before they come here.
CREATE TABLE import_chunks (
    import BLOB    NOT NULL,
    n      INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    PRIMARY KEY (import, n)
) STRICT;

-- What became of rows that were not simply accepted, one row per chunk.
CREATE TABLE import_results (
    import   BLOB    NOT NULL,
    last_row INTEGER NOT NULL,
    body     BLOB    NOT NULL,
    PRIMARY KEY (import, last_row)
) STRICT;

-- +goose Down
DROP TABLE import_results;
DROP TABLE import_chunks;
DROP TABLE imports;
