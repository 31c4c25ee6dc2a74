-- +goose Up

-- Bounded summaries that all processes add to.
CREATE TABLE reports (
    kind       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    body       BLOB,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;

-- +goose Down
DROP TABLE reports;
