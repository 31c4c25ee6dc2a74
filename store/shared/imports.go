package shared

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// ofTenant is call for the tables of tenants.
func ofTenant(name, tenant string, a args) Call {
	a["tenant"] = tenant
	c := call(name, a)
	c.Tenant = tenant
	return c
}

func ofImport(name string, i *store.Import, a args) Call {
	a["id"] = i.ID
	return ofTenant(name, i.Tenant, a)
}

// BeginImport implements store.Imports.
func (s *Store) BeginImport(ctx context.Context, i store.Import, most int) (begun store.Import, err error) {
	const operation = "begin import"
	switch {
	case i.ID == "" || i.Tenant == "" || i.Source == "" || i.Format == "":
		return store.Import{}, store.WithClass(errors.New("begin import: id, tenant, source and format are needed"), store.Fatal)
	case len(i.Options) == 0:
		i.Options = []byte("{}")
	case !json.Valid(i.Options):
		return store.Import{}, store.WithClass(errors.New("begin import: the options are not JSON"), store.Poison)
	}
	err = s.DB.Write(ctx, operation, func(t Tx) error {
		if err := t.Lock(Imports); err != nil {
			return err
		}
		newest, err := oneIn(t, call("newest_generation", args{}), scanCount)
		if err != nil {
			return err
		}
		found, err := oneIn(t, ofImport("import", &i, args{}), scanImport)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		lost := found.generation < newest
		if err == nil && found.State == store.ImportDone && !lost {
			begun = found.Import
			return nil
		}
		if err != nil || found.State != store.ImportIncomplete {
			open, err := oneIn(t, ofImport("count_incomplete_imports", &i, args{}), scanCount)
			if err != nil {
				return err
			}
			if most > 0 && open >= int64(most) {
				return store.ErrTooMany
			}
		}
		about := args{"now": now(), "name": store.SanitizeText(i.Name), "actor": store.SanitizeText(i.Actor)}
		var calls []Call
		if err != nil {
			calls = append(calls, ofImport("add_import", &i, args{"source": i.Source, "format": i.Format, "options": string(i.Options),
				"file": store.SanitizeText(i.File), "now": about["now"], "name": about["name"], "actor": about["actor"]}))
		}
		if err != nil || lost || found.State == store.ImportFailed {
			calls = append(calls, ofImport("restart_import", &i, args{"generation": newest}), ofImport("drop_import_results", &i, args{}))
		}
		if _, err := t.Exec(append(calls, ofImport("begin_import", &i, about))...); err != nil {
			return err
		}
		found, err = oneIn(t, ofImport("import", &i, args{}), scanImport)
		begun = found.Import
		return err
	})
	if err != nil {
		return store.Import{}, err
	}
	return begun, nil
}

// StepImport implements store.Imports.
func (s *Store) StepImport(ctx context.Context, i store.Import, to store.ImportPosition, rows []store.ImportRow) error {
	calls := []Call{}
	if len(rows) > 0 {
		body, err := store.PackImportRows(rows)
		if err != nil {
			return err
		}
		calls = append(calls, ofImport("add_import_results", &i, args{"last": rows[len(rows)-1].Row, "body": body}))
	}
	return s.DB.Write(ctx, "step of an import", func(t Tx) error {
		n, err := t.Exec(ofImport("step_import", &i, args{"bytes": to.Bytes, "row": to.Row, "cursor": to.Cursor, "attempt": i.Attempt,
			"accepted": to.Counts.Accepted, "duplicate": to.Counts.Duplicate, "invalid": to.Counts.Invalid, "conflicting": to.Counts.Conflicting,
			"state": string(to.State), "failure": store.SanitizeText(to.Failure), "now": now()}))
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		if err == nil {
			_, err = t.Exec(calls...)
		}
		return err
	})
}

// CancelImport implements store.Imports.
func (s *Store) CancelImport(ctx context.Context, tenant, id string) (store.Import, error) {
	if _, err := s.write(ctx, "cancel import", ofTenant("cancel_import", tenant, args{"id": id, "now": now()})); err != nil {
		return store.Import{}, err
	}
	return s.Import(ctx, tenant, id)
}

// Import implements store.Imports.
func (s *Store) Import(ctx context.Context, tenant, id string) (store.Import, error) {
	found, err := one(ctx, s, "read import", ofTenant("import", tenant, args{"id": id}), scanImport)
	return found.Import, err
}

// ListImports implements store.Imports.
func (s *Store) ListImports(ctx context.Context, tenant, before string, limit int) ([]store.Import, error) {
	return list(ctx, s, "list imports", ofTenant("list_imports", tenant, args{"before": before, "limit": max(limit, 0)}), func(row Row) (store.Import, error) {
		i, err := scanImport(row)
		return i.Import, err
	})
}

// foundImport is an import and the newest inbox when it began.
type foundImport struct {
	store.Import
	generation int64
}

func scanImport(row Row) (i foundImport, err error) {
	c := &i.Counts
	err = row.Scan(&i.ID, &i.Tenant, &i.Source, &i.Format, &i.Options, &i.File, &i.Name, &i.Actor, &i.Created, &i.Updated, &i.Attempt,
		&i.Bytes, &i.Row, &i.Cursor, &c.Accepted, &c.Duplicate, &c.Invalid, &c.Conflicting, &i.State, &i.Failure, &i.generation)
	return i, err
}

// ImportRows implements store.Imports.
func (s *Store) ImportRows(ctx context.Context, tenant, id string, after int64, limit int) (page []store.ImportRow, err error) {
	for next := after; len(page) < limit; next = page[len(page)-1].Row {
		packed, err := list(ctx, s, "read results of an import", ofTenant("import_results", tenant, args{"id": id, "after": next}), func(row Row) (b []byte, err error) {
			err = row.Scan(&b)
			return b, err
		})
		if err != nil {
			return nil, err
		}
		if len(packed) == 0 {
			break
		}
		if page, err = store.AppendImportRows(page, packed[0], next); err != nil {
			return nil, err
		}
	}
	return page[:min(len(page), max(limit, 0))], nil
}

// PruneImports implements store.Imports.
func (s *Store) PruneImports(ctx context.Context, before time.Time) (int, error) {
	if _, err := s.pruned(ctx, "prune_import_results", before.UTC()); err != nil {
		return 0, err
	}
	return s.pruned(ctx, "prune_imports", before.UTC())
}
