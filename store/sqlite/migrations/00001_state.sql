-- +goose Up

-- Texts compare by their bytes (BINARY), the default. Times are microseconds
-- since 1970 in UTC.
CREATE TABLE entities (
    id          TEXT PRIMARY KEY NOT NULL,
    docs        TEXT    NOT NULL,
    fence       BLOB,
    version     INTEGER NOT NULL,
    fingerprint BLOB,
    deleted_at  INTEGER
) STRICT;

CREATE INDEX entities_deleted ON entities (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE services (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name   TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE dam (
    entity            TEXT    NOT NULL,
    service           INTEGER NOT NULL,
    content           BLOB, -- change.Content; null is the unknown state
    version           INTEGER NOT NULL,
    delivered_version INTEGER NOT NULL DEFAULT 0,
    delivered         BLOB,
    PRIMARY KEY (entity, service)
) STRICT, WITHOUT ROWID;

CREATE TABLE watermarks (
    generation  INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    token       BLOB    NOT NULL,
    PRIMARY KEY (generation, partition)
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: an id is never used again, also after its row was deleted.
CREATE TABLE outbox (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    generation INTEGER NOT NULL,
    partition  INTEGER NOT NULL,
    payload    BLOB    NOT NULL
) STRICT;
CREATE INDEX outbox_partition ON outbox (generation, partition, id);

CREATE TABLE inboxes (
    generation INTEGER PRIMARY KEY CHECK (generation BETWEEN 1 AND 32767),
    topic      TEXT    NOT NULL,
    topic_id   TEXT    NOT NULL,
    partitions INTEGER NOT NULL,
    opened_at  INTEGER NOT NULL,
    UNIQUE (topic, topic_id)
) STRICT;

-- The active revision is the one with the highest number.
CREATE TABLE revisions (
    number       INTEGER PRIMARY KEY,
    fingerprint  BLOB    NOT NULL,
    activated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    stage      TEXT    NOT NULL,
    code       TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    service    TEXT    NOT NULL,
    entity     TEXT    NOT NULL,
    event_id   TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    topic      TEXT    NOT NULL,
    part       INTEGER NOT NULL,
    "offset"   INTEGER NOT NULL,
    payload    BLOB    NOT NULL,
    headers    BLOB,
    state      TEXT    NOT NULL DEFAULT 'open',
    original   BLOB,
    dedup_key  BLOB    NOT NULL UNIQUE
) STRICT;
CREATE INDEX dead_letters_open ON dead_letters (stage) WHERE state = 'open';
CREATE INDEX dead_letters_entity ON dead_letters (entity, id);

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    time    INTEGER NOT NULL,
    actor   TEXT NOT NULL,
    action  TEXT NOT NULL,
    reason  TEXT NOT NULL,
    entity  TEXT NOT NULL,
    service TEXT NOT NULL,
    detail  TEXT
) STRICT;

CREATE TABLE source_positions (
    source      TEXT    NOT NULL,
    identity    TEXT    NOT NULL,
    next_offset INTEGER NOT NULL,
    state       BLOB,
    PRIMARY KEY (source, identity)
) STRICT, WITHOUT ROWID;

-- The dam for people.
CREATE VIEW dam_rows AS
SELECT s.name AS service,
       d.entity,
       CASE WHEN d.content IS NULL THEN 'unknown' WHEN d.content = x'ff' THEN 'retracted' ELSE 'upsert' END AS state,
       CASE WHEN length(d.content) > 1 THEN
         (instr('0123456789ABCDEF', substr(hex(d.content), 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(hex(d.content), 2, 1)) - 1
       END AS scheme,
       CASE WHEN length(d.content) > 1 THEN lower(hex(substr(d.content, 2))) END AS hash,
       d.version,
       d.version >> 48 AS generation,
       d.version & ((1 << 48) - 1) AS "offset",
       d.delivered_version,
       d.content IS NOT NULL AND d.version > d.delivered_version AS pending
FROM dam d JOIN services s ON s.number = d.service;

-- +goose Down
DROP VIEW dam_rows;
DROP TABLE source_positions;
DROP TABLE audit;
DROP TABLE dead_letters;
DROP TABLE revisions;
DROP TABLE inboxes;
DROP TABLE outbox;
DROP TABLE watermarks;
DROP TABLE dam;
DROP TABLE services;
DROP TABLE entities;
