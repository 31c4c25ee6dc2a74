package shared

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// CheckRows implements store.CheckRows.
func (s *Store) CheckRows(ctx context.Context, keys []store.Key) ([]store.CheckRow, error) {
	found := make([]store.CheckRow, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	places := make(map[store.Key][]int, len(keys))
	entities, services := make([]string, len(keys)), []int64{}
	for i, k := range keys {
		if err := Holdable(k.Entity); err != nil {
			return nil, err
		}
		found[i].Key, entities[i], places[k] = k, k.Entity, append(places[k], i)
		if n := int64(k.Service); !slices.Contains(services, n) {
			services = append(services, n)
		}
	}
	err := s.DB.Read(ctx, "read check rows", sqlCheckRows(entities, services), func(row Row) error {
		r, err := scanCheckRow(row)
		for _, i := range places[r.Key] {
			found[i] = r
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// SwapCheckRows implements store.CheckRows.
//
// Inserts come before updates, each in the order of keys, so that no two calls
// wait for each other: ON CONFLICT DO NOTHING waits for the writer of the
// row, also by an update; an update never waits for an insert, which it does
// not see. A row that stays locked ends the call with Retry.
func (s *Store) SwapCheckRows(ctx context.Context, rows []store.CheckRow) ([]bool, error) {
	order, distinct := store.SortCheckRows(rows)
	if !distinct {
		return nil, store.WithClass(errors.New("a check row is swapped twice in one call"), store.Fatal)
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(min(rows[a].Revision, 1) - min(rows[b].Revision, 1)) })
	calls := make([]Call, len(order))
	for n, i := range order {
		r := &rows[i]
		if err := Holdable(r.Entity); err != nil {
			return nil, err
		}
		if calls[n] = sqlSwapCheck(r); r.Revision == 0 {
			calls[n] = sqlInsertCheck(r)
		}
	}
	swapped := make([]bool, len(rows))
	if len(calls) == 0 {
		return swapped, nil
	}
	written, err := s.DB.Send(ctx, "swap check rows", calls)
	if err != nil {
		return nil, err
	}
	for n, i := range order {
		swapped[i] = written[n] == 1
	}
	return swapped, nil
}

// ServiceCheckRows implements store.Operations.
func (s *Store) ServiceCheckRows(ctx context.Context, service int32, after string, limit int) ([]store.CheckRow, error) {
	return list(ctx, s, "page check rows", sqlServiceChecks(service, after, max(limit, 0)), scanCheckRow)
}

func scanCheckRow(row Row) (store.CheckRow, error) {
	r := store.CheckRow{Found: true}
	var version, delivered int64
	err := row.Scan(&r.Entity, &r.Service, &r.Revision, (*[]byte)(&r.Content), &version, &delivered, (*[]byte)(&r.Delivered), &r.Memory)
	r.Version, r.DeliveredVersion = change.Version(version), change.Version(delivered)
	return r, err
}

// Holdable refuses an entity id that one of the databases cannot hold: what one holds, the
// other must, too.
func Holdable(id string) error {
	if utf8.ValidString(id) && strings.IndexByte(id, 0) < 0 {
		return nil
	}
	return store.WithClass(errors.New("an entity id holds a NUL or invalid UTF-8"), store.Poison)
}
