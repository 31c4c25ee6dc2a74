-- +goose Up

-- The months of the ledger: each has tables of its own, ledger_2026_11 and
-- decided_2026_11 for instance, which the store makes and drops.
CREATE TABLE ledger_months (
    month TEXT PRIMARY KEY -- 2026_11
) WITHOUT ROWID;

-- +goose Down
DROP TABLE ledger_months;
