-- +goose Up

-- Bounded summaries that all processes add to.
CREATE TABLE reports (
    kind       text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    body       bytea,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (kind, name)
);

-- +goose Down
DROP TABLE reports;
