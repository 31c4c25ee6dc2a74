-- +goose Up

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
