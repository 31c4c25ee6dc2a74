-- +goose Up

-- Entity keys are ordered by their bytes everywhere, so that locks are taken in
-- one order by every process whatever its locale.
CREATE TABLE entities (
    id          text COLLATE "C" PRIMARY KEY,
    docs        json        NOT NULL, -- json, not jsonb: number literals and member order stay as they came
    fence       bytea,
    version     bigint      NOT NULL,
    fingerprint bytea,
    deleted_at  timestamptz
) WITH (fillfactor = 80);

CREATE INDEX entities_deleted ON entities (deleted_at) WHERE deleted_at IS NOT NULL;

CREATE TABLE services (
    number integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text COLLATE "C" NOT NULL UNIQUE
);

-- No index but the key and free space in every page: updates stay in their page (HOT).
CREATE TABLE dam (
    entity            text COLLATE "C" NOT NULL,
    service           integer NOT NULL,
    content           bytea,            -- change.Content; null is the unknown state
    version           bigint  NOT NULL,
    delivered_version bigint  NOT NULL DEFAULT 0,
    delivered         bytea,
    PRIMARY KEY (entity, service)
) WITH (fillfactor = 80);

CREATE TABLE watermarks (
    generation  integer NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint  NOT NULL,
    token       bytea   NOT NULL,
    PRIMARY KEY (generation, partition)
) WITH (fillfactor = 50);

CREATE TABLE outbox (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    generation integer NOT NULL,
    partition  integer NOT NULL,
    payload    bytea   NOT NULL
);
ALTER TABLE outbox ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE INDEX outbox_partition ON outbox (generation, partition, id);

CREATE TABLE inboxes (
    generation integer PRIMARY KEY CHECK (generation BETWEEN 1 AND 32767),
    topic      text    NOT NULL,
    topic_id   text    NOT NULL,
    partitions integer NOT NULL,
    opened_at  timestamptz NOT NULL DEFAULT now(),
    UNIQUE (topic, topic_id)
);

-- The active revision is the one with the highest number.
CREATE TABLE revisions (
    number       bigint PRIMARY KEY,
    fingerprint  bytea NOT NULL,
    activated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE dead_letters (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at timestamptz NOT NULL DEFAULT now(),
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
    state      text    NOT NULL DEFAULT 'open',
    original   bytea,
    dedup_key  bytea   NOT NULL UNIQUE
);
CREATE INDEX dead_letters_open ON dead_letters (stage) WHERE state = 'open';
CREATE INDEX dead_letters_entity ON dead_letters (entity, id);

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

CREATE TABLE source_positions (
    source      text   NOT NULL,
    identity    text   NOT NULL,
    next_offset bigint NOT NULL,
    state       bytea,
    PRIMARY KEY (source, identity)
);

-- The dam for people.
CREATE VIEW dam_rows AS
SELECT s.name AS service,
       d.entity,
       CASE WHEN d.content IS NULL THEN 'unknown' WHEN d.content = '\xff' THEN 'retracted' ELSE 'upsert' END AS state,
       CASE WHEN length(d.content) > 1 THEN get_byte(d.content, 0) END AS scheme,
       CASE WHEN length(d.content) > 1 THEN encode(substring(d.content FROM 2), 'hex') END AS hash,
       d.version,
       d.version >> 48 AS generation,
       d.version & ((1::bigint << 48) - 1) AS "offset",
       d.delivered_version,
       d.content IS NOT NULL AND d.version > d.delivered_version AS pending
FROM dam d JOIN services s ON s.number = d.service;

-- Ends a transaction, whose COMMIT may already be on its way in the same
-- pipeline, when a statement did not touch as many rows as it had to.
-- +goose StatementBegin
CREATE FUNCTION weir_expect(actual bigint, expected bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF actual IS DISTINCT FROM expected THEN
        RAISE EXCEPTION 'a row was moved by somebody else' USING ERRCODE = 'WF001';
    END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION weir_expect(bigint, bigint);
DROP VIEW dam_rows;
DROP TABLE source_positions, audit, dead_letters, revisions, inboxes, outbox, watermarks, dam, services, entities;
