-- +goose Up

-- Files that are taken into a source, and how far each is.
CREATE TABLE imports (
    id          uuid PRIMARY KEY,                       -- UUIDv7: its order is that of creation
    tenant      text COLLATE "C" NOT NULL,
    source      text COLLATE "C" NOT NULL,
    format      text        NOT NULL,
    options     text        NOT NULL,
    name        text        NOT NULL,
    fingerprint bytea,                                  -- null while the file comes in
    bytes       bigint      NOT NULL DEFAULT 0,
    chunks      bigint      NOT NULL DEFAULT 0,
    next_chunk  bigint      NOT NULL DEFAULT 0,
    rows_behind bigint      NOT NULL DEFAULT 0,
    cursor      bytea,
    accepted    bigint      NOT NULL DEFAULT 0,
    duplicate   bigint      NOT NULL DEFAULT 0,
    invalid     bigint      NOT NULL DEFAULT 0,
    conflicting bigint      NOT NULL DEFAULT 0,
    state       text        NOT NULL DEFAULT 'receiving',
    failure     text        NOT NULL DEFAULT '',
    actor       text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    sealed      bigint,                                 -- the order of completed files
    attempt     bigint      NOT NULL DEFAULT 0,
    lease_until timestamptz
);
CREATE SEQUENCE import_seals;
CREATE INDEX imports_open ON imports (source, sealed) WHERE state IN ('queued', 'running');
CREATE INDEX imports_tenant ON imports (tenant, id);
CREATE INDEX imports_file ON imports (tenant, fingerprint) WHERE fingerprint IS NOT NULL;

-- Chunks are compressed before they come here.
CREATE TABLE import_chunks (
    import uuid   NOT NULL,
    n      bigint NOT NULL,
    body   bytea  NOT NULL,
    PRIMARY KEY (import, n)
);
ALTER TABLE import_chunks ALTER COLUMN body SET STORAGE EXTERNAL;

-- What became of rows that were not simply accepted, one row per chunk.
CREATE TABLE import_results (
    import   uuid   NOT NULL,
    last_row bigint NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    body     bytea  NOT NULL,
    PRIMARY KEY (import, last_row)
);
ALTER TABLE import_results ALTER COLUMN body SET STORAGE EXTERNAL;

-- A tenant's calls see its own rows; the pipeline's own calls see all.
ALTER TABLE imports        ENABLE ROW LEVEL SECURITY;
ALTER TABLE imports        FORCE ROW LEVEL SECURITY;
ALTER TABLE import_chunks  ENABLE ROW LEVEL SECURITY;
ALTER TABLE import_chunks  FORCE ROW LEVEL SECURITY;
ALTER TABLE import_results ENABLE ROW LEVEL SECURITY;
ALTER TABLE import_results FORCE ROW LEVEL SECURITY;
CREATE POLICY own ON imports        USING (tenant = current_setting('weir.tenant', true));
CREATE POLICY own ON import_results USING (tenant = current_setting('weir.tenant', true));
CREATE POLICY pipeline ON imports        USING (current_setting('weir.pipeline', true) = 'on');
CREATE POLICY pipeline ON import_chunks  USING (current_setting('weir.pipeline', true) = 'on');
CREATE POLICY pipeline ON import_results USING (current_setting('weir.pipeline', true) = 'on');

-- +goose Down
DROP TABLE import_results;
DROP TABLE import_chunks;
DROP TABLE imports;
DROP SEQUENCE import_seals;
