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
	return updateNames(ctx, s, func(names map[string]string) { maps.Copy(names, renamed) })
}

// firstNames returns the first names of renamed customers by their later ones.
func firstNames(ctx context.Context, s store.Reports) (names map[string]string, err error) {
	reports, err := s.ListReports(ctx, namesKind)
	for _, r := range reports {
		if err == nil {
			err = json.Unmarshal(r.Body, &names)
		}
	}
	return names, err
}

// dropNames removes the names of a forgotten customer.
func dropNames(ctx context.Context, s store.Reports, first string) error {
	known, err := firstNames(ctx, s)
	if err != nil || len(known) == 0 {
		return err
	}
	return updateNames(ctx, s, func(names map[string]string) {
		maps.DeleteFunc(names, func(_, of string) bool { return of == first })
	})
}

func updateNames(ctx context.Context, s store.Reports, change func(names map[string]string)) error {
	return s.UpdateReport(ctx, namesKind, namesName, func(body []byte) ([]byte, error) {
		names := map[string]string{}
		if body != nil {
			if err := json.Unmarshal(body, &names); err != nil {
				return nil, err
			}
		}
		change(names)
		return json.Marshal(names)
	})
}
