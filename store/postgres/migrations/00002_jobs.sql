-- +goose Up

-- Long operations of operators, to be resumed after a kill.
CREATE TABLE jobs (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
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
CREATE UNIQUE INDEX jobs_open ON jobs (kind, key) WHERE state = 'open';

-- +goose Down
DROP TABLE jobs;
