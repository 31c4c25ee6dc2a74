package shared

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// BeginImport implements store.Imports.
func (s *Store) BeginImport(ctx context.Context, i store.Import) (begun store.Import, err error) {
	switch {
	case i.ID == "" || i.Tenant == "" || i.Source == "" || i.Format == "":
		return store.Import{}, store.WithClass(errors.New("begin import: id, tenant, source and format are needed"), store.Fatal)
	case len(i.Options) == 0:
		i.Options = []byte("{}")
	case !json.Valid(i.Options):
		return store.Import{}, store.WithClass(errors.New("begin import: the options are not JSON"), store.Poison)
	}
	i.File, i.Name, i.Actor = store.SanitizeText(i.File), store.SanitizeText(i.Name), store.SanitizeText(i.Actor)
	err = s.DB.Write(ctx, "begin import", func(t Tx) error {
		_, err := t.Exec(sqlAddImport(&i, string(i.Options), now()), sqlRestartImport(&i))
		if err == nil {
			begun, err = one(listIn(t, sqlImport(i.Tenant, i.ID), scanImport))
		}
		return err
	})
	return begun, err
}

// StepImport implements store.Imports.
func (s *Store) StepImport(ctx context.Context, i store.Import, to store.ImportPosition, letters []store.DeadLetter) error {
	return s.DB.Write(ctx, "step of an import", func(t Tx) error {
		n, err := t.Exec(sqlStepImport(&i, to, now()))
		if err == nil && n == 0 {
			err = store.ErrFenced
		}
		if err == nil && len(letters) > 0 {
			_, err = t.Exec(Letters(letters)...)
		}
		return err
	})
}

// Import implements store.Imports.
func (s *Store) Import(ctx context.Context, tenant, id string) (store.Import, error) {
	return one(list(ctx, s, "read import", sqlImport(tenant, id), scanImport))
}

// ListImports implements store.Imports.
func (s *Store) ListImports(ctx context.Context, tenant, before string, limit int) ([]store.Import, error) {
	return list(ctx, s, "list imports", sqlListImports(tenant, before, max(limit, 0)), scanImport)
}

func scanImport(row Row) (i store.Import, err error) {
	c := &i.Counts
	err = row.Scan(&i.ID, &i.Tenant, &i.Source, &i.Format, &i.Options, &i.File, &i.Name, &i.Actor, &i.Created, &i.Updated,
		&i.Bytes, &i.Row, &c.Accepted, &c.Duplicate, &c.Refused, &i.State)
	return i, err
}

// ImportLetters implements store.Imports.
func (s *Store) ImportLetters(ctx context.Context, id, after string, limit int) ([]store.DeadLetter, error) {
	if after == "" {
		after = store.ImportLetterKey(id, 0)
	}
	last := store.ImportLetterKey(id, math.MaxInt64)
	return list(ctx, s, "read refused rows", sqlImportLetters([]byte(after), []byte(last), max(limit, 0)), scanListed)
}

// PruneImports implements store.Imports.
func (s *Store) PruneImports(ctx context.Context, before time.Time) (int, error) {
	return s.pruned(ctx, sqlPruneImports(before, prunePage))
}
