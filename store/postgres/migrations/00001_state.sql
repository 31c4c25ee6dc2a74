-- +goose Up

-- Entity keys are ordered by their bytes everywhere, so that locks are taken in
-- one order by every process whatever its locale.
CREATE TABLE entities (
    id          text COLLATE "C" PRIMARY KEY,
    docs        text        NOT NULL, -- JSON that Weir wrote: text, since the type json would parse it at each write
    fence       bytea,
    version     bigint      NOT NULL,
    fingerprint bytea,
    deleted_at  timestamptz,
    writes      bigint      NOT NULL, -- how often the row was written: compared when it is written again
    states      bytea       NOT NULL  -- page 0 of the dam states, see weir_states
) WITH (
    fillfactor = 65,           -- an update of a row of 2 KB still finds room beside it (HOT)
    toast_tuple_target = 4080, -- of a larger one documents go elsewhere: two rows fit in a page
    -- By a fiftieth of the table, not a fifth: at 100 million rows that is 2 million dead ones.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE entities ALTER COLUMN states SET STORAGE PLAIN; -- digests: nothing to compress, and at most 1.4 KB

CREATE INDEX entities_deleted ON entities (deleted_at, id) WHERE deleted_at IS NOT NULL;

CREATE TABLE services (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text COLLATE "C" NOT NULL UNIQUE
);

-- The dam states of the services with numbers from 32 on, in pages of 32. No index
-- but the key and free space in every page: updates stay in their page (HOT).
CREATE TABLE dam (
    entity text COLLATE "C" NOT NULL,
    page   integer NOT NULL,
    states bytea   NOT NULL,
    PRIMARY KEY (entity, page)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02, -- as entities
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);
ALTER TABLE dam ALTER COLUMN states SET STORAGE PLAIN;

CREATE TABLE watermarks (
    generation  integer NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint  NOT NULL,
    last_to     bigint  NOT NULL, -- where the newest frame of the partition ends, also one of an older generation
    token       bytea   NOT NULL,
    -- Start of the server at the takeover: it differs after a restart, a restore and a failover.
    session     timestamptz NOT NULL DEFAULT pg_postmaster_start_time(),
    -- In that session, decisions from next_offset up to here may have been made once and lost in a
    -- restore; the highest number is an end that is not known yet.
    doubt       bigint  NOT NULL,
    floors      text    NOT NULL DEFAULT '[]', -- of logs: store.Floor as JSON
    PRIMARY KEY (partition, generation)
) WITH (fillfactor = 50);

-- The changes log: frames are compressed, read by who lags, and deleted by age and size. Those that fit in a page
-- stay in it.
CREATE TABLE frames (
    partition integer NOT NULL,
    upto      bigint  NOT NULL, -- where the frame ends
    written   timestamptz NOT NULL,
    body      bytea   NOT NULL, -- change.Frame
    total     bigint  NOT NULL, -- bytes of the partition's bodies up to this one, also of deleted ones
    PRIMARY KEY (partition, upto)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02);
ALTER TABLE frames ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE INDEX frames_written ON frames (written);

-- How far the deliveries of each partition are: one row, swapped under its token.
CREATE TABLE progress (
    partition integer PRIMARY KEY,
    token     bytea  NOT NULL,
    positions bytea  NOT NULL, -- store.AppendPositions
    top       bigint NOT NULL, -- the highest position in positions
    -- Start of the server under which the row was taken over: the holder of the
    -- token may know decisions that a server restored since has lost.
    session   timestamptz NOT NULL
) WITH (fillfactor = 50);
ALTER TABLE progress ALTER COLUMN positions SET STORAGE MAIN;

-- Marks of resuming sinks, in rows of their own: written only where they moved, in the
-- transaction that swaps the row of the partition. Room for an update in its page (HOT).
CREATE TABLE progress_marks (
    partition integer NOT NULL,
    service   integer NOT NULL,
    mark      bytea   NOT NULL, -- store.ServicePosition: Mark and Repair
    PRIMARY KEY (partition, service)
) WITH (fillfactor = 50);
ALTER TABLE progress_marks ALTER COLUMN mark SET STORAGE MAIN; -- offsets: nothing to compress

-- The entities that the guard of a service counted within the window.
CREATE TABLE guarded (
    service text COLLATE "C" NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    entity  text COLLATE "C" NOT NULL,
    at      timestamptz NOT NULL, -- at the source, by slots of the window
    seen    timestamptz NOT NULL, -- when it was admitted
    PRIMARY KEY (service, kind, entity)
);
CREATE INDEX guarded_at ON guarded (service, kind, at);
CREATE INDEX guarded_seen ON guarded (service, kind, seen);

CREATE TABLE inboxes (
    generation integer PRIMARY KEY CHECK (generation BETWEEN 1 AND 32767),
    topic      text    NOT NULL,
    topic_id   text    NOT NULL,
    partitions integer NOT NULL,
    opened_at  timestamptz NOT NULL DEFAULT now(),
    session    timestamptz NOT NULL, -- start of the server
    journal    text    NOT NULL, -- id of the journal's topic, '' without one
    void       bigint  NOT NULL  -- numbers up to it that are no revision never become one
);
CREATE INDEX inboxes_identity ON inboxes (topic, topic_id, generation); -- a topic may have several, see RenewInbox

-- The active revision is the one with the highest number.
CREATE TABLE revisions (
    number       bigint PRIMARY KEY,
    fingerprint  bytea NOT NULL,
    activated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE dead_letters (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
    last_at    timestamptz NOT NULL DEFAULT now(), -- when it died last
    count      bigint  NOT NULL DEFAULT 1,         -- how often it died
    stage      text    NOT NULL,
    code       text    NOT NULL,
    reason     text    NOT NULL,
    source     text    NOT NULL,
    service    text    NOT NULL,
    entity     text COLLATE "C" NOT NULL,
    event_id   text    NOT NULL,
    version    bigint  NOT NULL,
    topic      text    NOT NULL,
    part       integer NOT NULL,
    "offset"   bigint  NOT NULL,
    payload    bytea   NOT NULL,
    headers    bytea,
    state      text    NOT NULL DEFAULT 'open', -- store.LetterState
    original   bytea,
    dedup_key  bytea   NOT NULL UNIQUE,
    position   bigint  NOT NULL, -- where the delivery stood that failed last; 0 for other letters
    attempts   integer NOT NULL DEFAULT 0, -- of a retrying row, or of the one that became the letter
    next_try   timestamptz, -- of a retrying row
    due_at     bigint -- when it is to be offered again, in microseconds since 1970; NULL: not before it dies again
);
CREATE INDEX dead_letters_open ON dead_letters (stage) WHERE state = 'open';
CREATE INDEX dead_letters_due ON dead_letters (service, due_at) WHERE state = 'open' AND due_at IS NOT NULL;
CREATE INDEX dead_letters_entity ON dead_letters (entity, id);
CREATE INDEX dead_letters_last ON dead_letters (last_at, id);
CREATE INDEX dead_letters_retrying ON dead_letters (part, service, position) WHERE state = 'retrying';

CREATE TABLE audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    time    timestamptz NOT NULL DEFAULT now(),
    actor   text NOT NULL,
    action  text NOT NULL,
    reason  text NOT NULL,
    entity  text NOT NULL,
    service text NOT NULL,
    detail  json
);
CREATE INDEX audit_time ON audit (time);

-- How far sources were read. Of a log that one session at a time reads, as a replication slot, the
-- row without an identity has the newest session.
CREATE TABLE source_positions (
    source      text COLLATE "C" NOT NULL,
    identity    text COLLATE "C" NOT NULL,
    next_offset bigint  NOT NULL, -- of a log: grows with each write
    state       bytea,
    number      bigint  NOT NULL DEFAULT 0,  -- of the session
    name        text    NOT NULL DEFAULT '',
    torn        integer NOT NULL DEFAULT 0,  -- 1: a restored store had lost a session's number
    PRIMARY KEY (source, identity)
) WITH (fillfactor = 50);

-- Takes a page of dam states apart. Each has 45 bytes: in one the number of the service in the page
-- (31), the kind of the content (32: retracted, 64: of a document) and whether it was refused (128); when
-- the entity entered the service, in three; the version; the content (change.Content).
CREATE FUNCTION weir_states(page integer, states bytea)
RETURNS TABLE (service integer, content bytea, refused boolean, version bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT page * 32 + (get_byte(states, at) & 31),
           CASE get_byte(states, at) & 96 WHEN 32 THEN '\xff'::bytea WHEN 64 THEN substring(states FROM at + 13 FOR 33) END,
           get_byte(states, at) > 127,
           ('x' || encode(substring(states FROM at + 5 FOR 8), 'hex'))::bit(64)::bigint
    FROM generate_series(0, length(states) - 45, 45) AS at
$$;

-- The dam for people.
CREATE VIEW dam_rows AS
SELECT s.name AS service,
       p.entity,
       CASE WHEN d.content IS NULL THEN 'unknown' WHEN d.refused THEN 'refused' WHEN d.content = '\xff' THEN 'retracted' ELSE 'upsert' END AS state,
       CASE WHEN length(d.content) > 1 THEN get_byte(d.content, 0) END AS scheme,
       CASE WHEN length(d.content) > 1 THEN encode(substring(d.content FROM 2), 'hex') END AS hash,
       d.version,
       d.version >> 48 AS generation,
       d.version & ((1::bigint << 48) - 1) AS "offset"
FROM (SELECT id AS entity, 0 AS page, states FROM entities UNION ALL SELECT entity, page, states FROM dam) AS p
CROSS JOIN LATERAL weir_states(p.page, p.states) AS d
JOIN services s ON s.number = d.service;

-- Ends a transaction, whose COMMIT may already be on its way in the same
-- pipeline, when a statement did not touch as many rows as it had to.
-- +goose StatementBegin
CREATE FUNCTION weir_expect(actual bigint, expected bigint, code text DEFAULT 'WF001') RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF actual IS DISTINCT FROM expected THEN
        RAISE EXCEPTION 'found %, expected %', actual, expected USING ERRCODE = code;
    END IF;
END
$$;
-- +goose StatementEnd

-- Long operations of operators, and tenants' imports, to be resumed after a kill.
CREATE TABLE jobs (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant     text COLLATE "C" NOT NULL, -- empty for the operators'
    kind       text        NOT NULL,
    key        text        NOT NULL,
    parameters json        NOT NULL,
    cursor     bytea,
    done       bigint      NOT NULL DEFAULT 0,
    total      bigint      NOT NULL DEFAULT 0,
    state      text        NOT NULL DEFAULT 'open',
    actor      text        NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    turn       bigint      NOT NULL DEFAULT 1
);

-- The same work is open once.
CREATE UNIQUE INDEX jobs_open ON jobs (tenant, kind, key) WHERE state = 'open';
CREATE INDEX jobs_updated ON jobs (updated_at);

-- A tenant's calls see its own rows, and those of operators; the pipeline's own calls see all.
ALTER TABLE jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE jobs FORCE ROW LEVEL SECURITY;
CREATE POLICY jobs_tenant ON jobs USING (tenant IN ('', current_setting('weir.tenant', true)));
CREATE POLICY jobs_pipeline ON jobs USING (current_setting('weir.pipeline', true) = 'on');

-- Bounded summaries that all processes add to, and the guards of services: store.GuardState, with
-- the pause of one whose deliveries wait for an operator.
CREATE TABLE reports (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    body       bytea,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name)
) WITH (fillfactor = 50);

-- Idempotency keys that were used, and what they were answered. In partitions
-- by month, ledger_2026_11 for instance, which the store makes and drops.
CREATE TABLE ledger (
    month        date             NOT NULL, -- of made_at, in UTC
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    key          text COLLATE "C" NOT NULL,
    id           uuid             NOT NULL, -- a UUIDv7 with the milliseconds of made_at
    fingerprint  bytea            NOT NULL,
    made_at      timestamptz      NOT NULL,
    generation   integer          NOT NULL DEFAULT 0, -- the newest inbox when the claim was made
    status       int4, -- of the response; null until there is one
    body         bytea
) PARTITION BY RANGE (month);

-- Which claims had their effect, in which version and for which key. A key is here
-- once: with the newest claim that had its effect under it. Rows go to the month
-- that is open when they are written, not to that of the claim, so that the unique
-- indexes of one month decide, as for the ledger. Apart from the ledger, so that
-- decisions and requests never wait for one another's rows.
CREATE TABLE ledger_decided (
    month   date NOT NULL,
    id      uuid NOT NULL,
    version int8 NOT NULL,
    key     uuid,  -- a digest of tenant and key; null where it is not known, or another claim has it
    content bytea, -- the first bytes of the fingerprint
    PRIMARY KEY (id, month)
) PARTITION BY RANGE (month);

-- The months that have partitions. New claims go to the newest.
CREATE VIEW ledger_months AS
SELECT to_date(right(c.relname, 7), 'YYYY_MM') AS month, c.oid, c.reltuples
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'ledger'::regclass;

-- A tenant's session reaches its own rows, the pipeline's own session all. Both
-- settings last for a transaction. FORCE: also where the role owns the tables.
ALTER TABLE ledger ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger FORCE ROW LEVEL SECURITY;
CREATE POLICY ledger_tenant ON ledger USING (tenant = current_setting('weir.tenant', true));
CREATE POLICY ledger_pipeline ON ledger USING (current_setting('weir.pipeline', true) = 'on');
ALTER TABLE ledger_decided ENABLE ROW LEVEL SECURITY;
ALTER TABLE ledger_decided FORCE ROW LEVEL SECURITY;
CREATE POLICY ledger_decided_pipeline ON ledger_decided USING (current_setting('weir.pipeline', true) = 'on');

-- +goose StatementBegin
CREATE FUNCTION weir_ledger_month(first date) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text;
    part text;
BEGIN
    IF EXISTS (SELECT FROM ledger_months WHERE month >= first) THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY ARRAY['ledger', 'ledger_decided'] LOOP
        part := name || to_char(first, '_YYYY_MM');
        -- Attaching a table locks less than creating it as a partition. Rows are
        -- changed once, when the response comes: there is room for that in the page.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 85)', part, name);
        -- Access is through the parent only: no policy.
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, part, first, first + interval '1 month');
    END LOOP;
    -- Of a partition, not of the whole: these would have to hold the month as well,
    -- and a plan made on old statistics could take the month for the way to a row.
    part := 'ledger' || to_char(first, '_YYYY_MM');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (tenant, key)', part || '_key', part);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (id)', part || '_id', part);
    part := 'ledger_decided' || to_char(first, '_YYYY_MM');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (key)', part || '_use', part);
END
$$;
-- +goose StatementEnd

-- The delivery history: attempts, and the first bytes of the targets' answers.
CREATE TABLE deliveries (
    service integer     NOT NULL,
    entity  text COLLATE "C" NOT NULL,
    at      timestamptz NOT NULL,
    version bigint      NOT NULL,
    outcome text        NOT NULL,
    status  integer     NOT NULL, -- of the answer; 0 without one
    answer  bytea       NOT NULL,
    ms      bigint      NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX deliveries_entity ON deliveries (entity);
CREATE INDEX deliveries_at ON deliveries (at, service);

-- The rows of check services. Like dam they have no index but the key and free
-- space in every page; a row is compared and swapped whole, by its revision.
CREATE TABLE checks (
    entity            text COLLATE "C" NOT NULL,
    service           integer NOT NULL,
    revision          bigint  NOT NULL,
    content           bytea,            -- change.Content; null is the unknown state
    version           bigint  NOT NULL,
    delivered_version bigint  NOT NULL,
    delivered         bytea,
    memory            bytea,
    PRIMARY KEY (entity, service)
) WITH (fillfactor = 80);

-- +goose Down
DROP TABLE checks;
DROP TABLE deliveries;
DROP FUNCTION weir_ledger_month(date);
DROP VIEW ledger_months;
DROP TABLE ledger_decided, ledger;
DROP TABLE reports, jobs;
DROP FUNCTION weir_expect(bigint, bigint, text);
DROP VIEW dam_rows;
DROP FUNCTION weir_states(integer, bytea);
DROP TABLE source_positions, audit, dead_letters, revisions, inboxes, guarded, progress_marks, progress, frames, watermarks, dam, services, entities;
