-- +goose Up

-- Idempotency keys that were used, and what they were answered. In partitions
-- by month, ledger_2026_11 for instance, which the store makes and drops.
CREATE TABLE ledger (
    month        date             NOT NULL, -- of made_at, in UTC
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    key          text COLLATE "C" NOT NULL,
    id           uuid             NOT NULL, -- a UUIDv7 with the milliseconds of made_at
    fingerprint  bytea            NOT NULL,
    made_at      timestamptz      NOT NULL,
    leased_until timestamptz      NOT NULL,
    status       int4, -- of the response; null until there is one
    body         bytea
) PARTITION BY RANGE (month);

-- Which claims had their effect, and in which version. Apart from the ledger, so
-- that decisions and requests never wait for one another's rows.
CREATE TABLE ledger_decided (
    month   date NOT NULL,
    id      uuid NOT NULL,
    version int8 NOT NULL,
    PRIMARY KEY (id, month)
) PARTITION BY RANGE (month);

-- The months that have partitions. New claims go to the newest that is open.
CREATE TABLE ledger_months (
    month date PRIMARY KEY,
    open  boolean NOT NULL DEFAULT false
);

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
    INSERT INTO ledger_months (month) VALUES (first) ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    FOREACH name IN ARRAY ARRAY['ledger', 'ledger_decided'] LOOP
        part := name || to_char(first, '_YYYY_MM');
        -- Attaching a table locks less than creating it as a partition. Rows are
        -- changed once, when the response comes: there is room for that in the page.
        EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS) WITH (fillfactor = 85)', part, name);
        -- Nobody has business in a partition but through its parent: no policy.
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', name, part, first, first + interval '1 month');
    END LOOP;
    -- Of a partition, not of the whole: these would have to hold the month as well,
    -- and a plan made on old statistics could take the month for the way to a row.
    part := 'ledger' || to_char(first, '_YYYY_MM');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (tenant, key)', part || '_key', part);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (id)', part || '_id', part);
    EXECUTE format('CREATE INDEX %I ON %I (leased_until) WHERE status IS NULL', part || '_in_progress', part);
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION weir_ledger_month(date);
DROP TABLE ledger_months, ledger_decided, ledger;
