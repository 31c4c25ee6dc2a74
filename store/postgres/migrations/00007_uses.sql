-- +goose Up

-- Which key a claim had its effect for. A key is here once: with the newest
-- claim that had its effect under it. Rows now go to the month that is open when
-- they are written, not to that of the claim, so that the unique indexes of one
-- month decide, as for the ledger.
ALTER TABLE ledger_decided
    ADD COLUMN key     uuid,  -- a digest of tenant and key; null where it is not known, or another claim has it
    ADD COLUMN content bytea; -- the first bytes of the fingerprint

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION weir_ledger_month(first date) RETURNS void LANGUAGE plpgsql AS $$
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
    part := 'ledger_decided' || to_char(first, '_YYYY_MM');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I (key)', part || '_use', part);
END
$$;

DO $$
DECLARE
    part text;
BEGIN
    FOR part IN SELECT 'ledger_decided' || to_char(month, '_YYYY_MM') FROM ledger_months LOOP
        EXECUTE format('CREATE UNIQUE INDEX %I ON %I (key)', part || '_use', part);
    END LOOP;
END
$$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE ledger_decided DROP COLUMN key, DROP COLUMN content;
