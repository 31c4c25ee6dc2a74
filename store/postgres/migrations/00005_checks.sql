-- +goose Up

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
