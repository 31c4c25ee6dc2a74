package operate

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/store"
)

// The report with the first names of customers that were renamed: the state of a
// customer has its first name, also when its file, which says so, is deleted.
const (
	namesKind = "names"
	namesName = "customers"
)

// NoteNames records the first names of renamed customers. It writes only after a rename.
func NoteNames(ctx context.Context, s store.Reports, c *config.Config) error {
	renamed := c.RenamedCustomers()
	if len(renamed) == 0 {
		return nil
	}
	known, err := firstNames(ctx, s)
	if err != nil {
		return err
	}
	missing := false
	for current, first := range renamed {
		missing = missing || known[current] != first
	}
	if !missing {
		return nil
	}
	return updateReport(ctx, s, namesKind, namesName, func(names *map[string]string) {
		if *names == nil {
			*names = map[string]string{}
		}
		maps.Copy(*names, renamed)
	})
}

// firstNames returns the first names of renamed customers by their later ones.
func firstNames(ctx context.Context, s store.Reports) (map[string]string, error) {
	return readReport[map[string]string](ctx, s, namesKind)
}

// dropNames removes the names of a forgotten customer.
func dropNames(ctx context.Context, s store.Reports, first string) error {
	known, err := firstNames(ctx, s)
	if err != nil || len(known) == 0 {
		return err
	}
	return updateReport(ctx, s, namesKind, namesName, func(names *map[string]string) {
		maps.DeleteFunc(*names, func(_, of string) bool { return of == first })
	})
}

// readReport returns the body of the only report of a kind, zero without one.
func readReport[T any](ctx context.Context, s ReportLister, kind string) (body T, err error) {
	reports, err := s.ListReports(ctx, kind)
	for _, r := range reports {
		if err == nil {
			err = json.Unmarshal(r.Body, &body)
		}
	}
	return body, err
}

// updateReport changes the body of a report, which is zero without one.
func updateReport[T any](ctx context.Context, s store.Reports, kind, name string, change func(*T)) error {
	return s.UpdateReport(ctx, kind, name, func(text []byte) ([]byte, error) {
		var body T
		if text != nil {
			if err := json.Unmarshal(text, &body); err != nil {
				return nil, err
			}
		}
		change(&body)
		return json.Marshal(body)
	})
}
