-- +goose Up

-- Texts compare by their bytes (BINARY), the default. Times are microseconds
-- since 1970 in UTC.
CREATE TABLE entities (
    id          TEXT PRIMARY KEY NOT NULL,
    docs        TEXT    NOT NULL,
    fence       BLOB,
    version     INTEGER NOT NULL,
    fingerprint BLOB,
    deleted_at  INTEGER,
    writes      INTEGER NOT NULL, -- how often the row was written: compared when it is written again
    states      BLOB    NOT NULL  -- page 0 of the dam states, see dam_rows
) STRICT;

CREATE INDEX entities_deleted ON entities (deleted_at, id) WHERE deleted_at IS NOT NULL;

CREATE TABLE services (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- The dam states of the services with numbers from 32 on, in pages of 32.
CREATE TABLE dam (
    entity TEXT    NOT NULL,
    page   INTEGER NOT NULL,
    states BLOB    NOT NULL,
    PRIMARY KEY (entity, page)
) STRICT;

CREATE TABLE watermarks (
    generation  INTEGER NOT NULL,
    partition   INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    last_to     INTEGER NOT NULL, -- where the newest frame of the partition ends, also one of an older generation
    token       BLOB    NOT NULL,
    session     TEXT    NOT NULL, -- of the process that took it over
    -- In that session, decisions from next_offset up to here may have been made once and lost in a
    -- restore; the highest number is an end that is not known yet.
    doubt       INTEGER NOT NULL,
    floors      TEXT    NOT NULL DEFAULT '[]', -- of logs: store.Floor as JSON
    PRIMARY KEY (partition, generation)
) STRICT, WITHOUT ROWID;

-- The changes log: frames are compressed, read by who lags, and deleted by age and size.
CREATE TABLE frames (
    partition INTEGER NOT NULL,
    upto      INTEGER NOT NULL, -- where the frame ends
    written   INTEGER NOT NULL,
    body      BLOB    NOT NULL, -- change.Frame
    total     INTEGER NOT NULL, -- bytes of the partition's bodies up to this one, also of deleted ones
    PRIMARY KEY (partition, upto)
) STRICT;
CREATE INDEX frames_written ON frames (written);

-- The logs, where no brokers are configured: the inbox. A row is what one write appended to a
-- partition. The log with number n itself is row n: its name, id and partitions as JSONB.
CREATE TABLE log_frames (
    place    INTEGER PRIMARY KEY, -- log << 59 | partition << 44 | offset of the first record
    records  INTEGER NOT NULL,
    time     INTEGER NOT NULL, -- milliseconds since 1970
    checksum INTEGER NOT NULL, -- CRC-32C of place, records and body
    form     INTEGER NOT NULL, -- of body; 0 is the value of one record
    body     BLOB    NOT NULL
) STRICT;

-- How far the deliveries of each partition are: one row, swapped under its token.
CREATE TABLE progress (
    partition INTEGER PRIMARY KEY,
    token     BLOB    NOT NULL,
    positions BLOB    NOT NULL, -- store.AppendPositions
    top       INTEGER NOT NULL  -- the highest position in positions
) STRICT;

-- Marks of resuming sinks, in rows of their own: written only where they moved, in the
-- transaction that swaps the row of the partition.
CREATE TABLE progress_marks (
    partition INTEGER NOT NULL,
    service   INTEGER NOT NULL,
    mark      BLOB    NOT NULL, -- store.ServicePosition: Mark and Repair
    PRIMARY KEY (partition, service)
) STRICT, WITHOUT ROWID;

-- The entities that the guard of a service counted within the window.
CREATE TABLE guarded (
    service TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    entity  TEXT    NOT NULL,
    at      INTEGER NOT NULL, -- at the source, by slots of the window
    seen    INTEGER NOT NULL, -- when it was admitted
    PRIMARY KEY (service, kind, entity)
) STRICT, WITHOUT ROWID;
CREATE INDEX guarded_at ON guarded (service, kind, at);
CREATE INDEX guarded_seen ON guarded (service, kind, seen);

CREATE TABLE inboxes (
    generation INTEGER PRIMARY KEY CHECK (generation BETWEEN 1 AND 32767),
    topic      TEXT    NOT NULL,
    topic_id   TEXT    NOT NULL,
    partitions INTEGER NOT NULL,
    opened_at  INTEGER NOT NULL,
    session    TEXT    NOT NULL,
    journal    TEXT    NOT NULL, -- id of the journal's topic, '' without one
    void       INTEGER NOT NULL  -- numbers up to it that are no revision never become one
) STRICT;
CREATE INDEX inboxes_identity ON inboxes (topic, topic_id, generation); -- a topic may have several, see RenewInbox

-- The active revision is the one with the highest number.
CREATE TABLE revisions (
    number       INTEGER PRIMARY KEY,
    fingerprint  BLOB    NOT NULL,
    activated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    created_at INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,           -- when it died last
    count      INTEGER NOT NULL DEFAULT 1, -- how often it died
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
    state      TEXT    NOT NULL DEFAULT 'open', -- store.LetterState
    original   BLOB,
    dedup_key  BLOB    NOT NULL UNIQUE,
    position   INTEGER NOT NULL, -- where the delivery stood that failed last; 0 for other letters
    attempts   INTEGER NOT NULL DEFAULT 0, -- of a retrying row, or of the one that became the letter
    next_try   INTEGER, -- of a retrying row
    due_at     INTEGER -- when it is to be offered again, in microseconds since 1970; NULL: not before it dies again
) STRICT;
CREATE INDEX dead_letters_open ON dead_letters (stage) WHERE state = 'open';
CREATE INDEX dead_letters_due ON dead_letters (service, due_at) WHERE state = 'open' AND due_at IS NOT NULL;
CREATE INDEX dead_letters_entity ON dead_letters (entity, id);
CREATE INDEX dead_letters_last ON dead_letters (last_at, id);
CREATE INDEX dead_letters_retrying ON dead_letters (part, service, position) WHERE state = 'retrying';

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
CREATE INDEX audit_time ON audit (time);

-- How far sources were read. Of a log that one session at a time reads, as a replication slot, the
-- row without an identity has the newest session.
CREATE TABLE source_positions (
    source      TEXT    NOT NULL,
    identity    TEXT    NOT NULL,
    next_offset INTEGER NOT NULL, -- of a log: grows with each write
    state       BLOB,
    number      INTEGER NOT NULL DEFAULT 0,  -- of the session
    name        TEXT    NOT NULL DEFAULT '',
    torn        INTEGER NOT NULL DEFAULT 0,  -- 1: a restored store had lost a session's number
    PRIMARY KEY (source, identity)
) STRICT, WITHOUT ROWID;

-- The dam for people. A state has 45 bytes: in one the number of the service in the page (31), the kind of
-- the content (32: retracted, 64: of a document) and whether it was refused (128); when the entity entered
-- the service, in three; the version; the content (change.Content).
CREATE VIEW dam_rows AS
WITH digits (at) AS (VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16)),
slots (slot) AS (VALUES (0) UNION ALL SELECT at FROM digits UNION ALL SELECT at + 16 FROM digits WHERE at < 16),
pages (entity, page, states) AS (SELECT id, 0, states FROM entities UNION ALL SELECT entity, page, states FROM dam),
states (entity, page, head, version, hash) AS (
    SELECT entity, page,
           (SELECT sum(instr('0123456789ABCDEF', substr(hex(substr(states, slot * 45 + 1, 1)), at, 1)) - 1 << (2 - at) * 4) FROM digits WHERE at <= 2),
           (SELECT sum(instr('0123456789ABCDEF', substr(hex(substr(states, slot * 45 + 5, 8)), at, 1)) - 1 << (16 - at) * 4) FROM digits),
           substr(states, slot * 45 + 13, 33)
    FROM pages JOIN slots ON slot * 45 < length(states))
SELECT s.name AS service,
       d.entity,
       CASE WHEN d.head & 96 = 0 THEN 'unknown' WHEN d.head > 127 THEN 'refused' WHEN d.head & 96 = 32 THEN 'retracted' ELSE 'upsert' END AS state,
       CASE WHEN d.head & 96 = 64 THEN
         (instr('0123456789ABCDEF', substr(hex(d.hash), 1, 1)) - 1) * 16 + instr('0123456789ABCDEF', substr(hex(d.hash), 2, 1)) - 1
       END AS scheme,
       CASE WHEN d.head & 96 = 64 THEN lower(hex(substr(d.hash, 2))) END AS hash,
       d.version,
       d.version >> 48 AS generation,
       d.version & ((1 << 48) - 1) AS "offset"
FROM states d JOIN services s ON s.number = d.page * 32 + (d.head & 31);

-- Long operations of operators, and tenants' imports, to be resumed after a kill.
CREATE TABLE jobs (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant     TEXT    NOT NULL, -- empty for the operators'
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
CREATE UNIQUE INDEX jobs_open ON jobs (tenant, kind, key) WHERE state = 'open';
CREATE INDEX jobs_updated ON jobs (updated_at);

-- Bounded summaries that all processes add to, and the guards of services: store.GuardState, with
-- the pause of one whose deliveries wait for an operator.
CREATE TABLE reports (
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    body       BLOB,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

-- Idempotency keys that were used, and what they were answered.
CREATE TABLE ledger (
    n            INTEGER PRIMARY KEY,
    tenant       TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    id           BLOB    NOT NULL UNIQUE, -- a UUIDv7 with the milliseconds of made_at
    fingerprint  BLOB    NOT NULL,
    made_at      INTEGER NOT NULL,
    generation   INTEGER NOT NULL DEFAULT 0, -- the newest inbox when the claim was made
    status       INTEGER, -- of the response; null until there is one
    body         BLOB,
    UNIQUE (tenant, key)
) STRICT;

CREATE TABLE ledger_decided (
    id         BLOB PRIMARY KEY,
    version    INTEGER NOT NULL,
    key        BLOB UNIQUE, -- a digest of tenant and key; null where it is not known, or another claim has it
    content    BLOB, -- the first bytes of the fingerprint
    decided_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The delivery history: attempts, and the first bytes of the targets' answers. No index by
-- entity: it would cost six times as much as the row, and reads are rare.
CREATE TABLE deliveries (
    service INTEGER NOT NULL,
    entity  TEXT    NOT NULL,
    at      INTEGER NOT NULL,
    version INTEGER NOT NULL,
    outcome TEXT    NOT NULL,
    status  INTEGER NOT NULL, -- of the answer; 0 without one
    answer  BLOB    NOT NULL,
    ms      INTEGER NOT NULL
) STRICT;
CREATE INDEX deliveries_at ON deliveries (at, service);

-- The rows of check services; a row is compared and swapped whole, by its
-- revision.
CREATE TABLE checks (
    entity            TEXT    NOT NULL,
    service           INTEGER NOT NULL,
    revision          INTEGER NOT NULL,
    content           BLOB, -- change.Content; null is the unknown state
    version           INTEGER NOT NULL,
    delivered_version INTEGER NOT NULL,
    delivered         BLOB,
    memory            BLOB,
    PRIMARY KEY (entity, service)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE checks;
DROP TABLE deliveries;
DROP TABLE ledger_decided;
DROP TABLE ledger;
DROP TABLE reports;
DROP TABLE jobs;
DROP VIEW dam_rows;
DROP TABLE source_positions;
DROP TABLE audit;
DROP TABLE dead_letters;
DROP TABLE revisions;
DROP TABLE inboxes;
DROP TABLE guarded;
DROP TABLE progress_marks;
DROP TABLE progress;
DROP TABLE log_frames;
DROP TABLE frames;
DROP TABLE watermarks;
DROP TABLE dam;
DROP TABLE services;
DROP TABLE entities;
