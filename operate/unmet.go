package operate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/store"
)

// EntityLister pages through entities.
type EntityLister interface {
	Entities(ctx context.Context, after string, limit int) ([]store.Entity, error)
}

const (
	// unmetSample is about how many entities Unmet reads at most.
	unmetSample = 1000
	unmetPage   = 50
)

// unmetStarts are the ids after which Unmet reads: those of one source may sort before all of
// another.
var unmetStarts = []string{"", "3", "6", "A", "a", "f", "m", "s"}

// Unmet returns a status line for each required source that shares no entity with another
// source. It reads a sample of the entities, and says nothing of a source without any in it.
func Unmet(ctx context.Context, s EntityLister, required []string) (items []Item, err error) {
	alone, met, names := map[string]int{}, map[string]bool{}, map[string]bool{}
	for n, after := range unmetStarts {
		for read := 0; read < unmetSample/len(unmetStarts); read += unmetPage {
			page, err := s.Entities(ctx, after, unmetPage)
			if err != nil {
				return nil, err
			}
			full := len(page) == unmetPage
			if n+1 < len(unmetStarts) { // the rest follows the next start
				page = page[:sort.Search(len(page), func(i int) bool { return page[i].ID > unmetStarts[n+1] })]
			}
			for i := range page {
				var docs map[string]json.RawMessage
				if err := json.Unmarshal(page[i].Docs, &docs); err != nil {
					return nil, fmt.Errorf("documents of an entity: %w", err)
				}
				for name := range docs {
					names[name] = true
					if len(docs) > 1 {
						met[name] = true
					} else {
						alone[name]++
					}
				}
			}
			if !slices.ContainsFunc(required, func(r string) bool { return !met[r] }) {
				return nil, nil
			}
			if !full || len(page) < unmetPage {
				break
			}
			after = page[len(page)-1].ID
		}
	}
	for _, name := range required {
		if n := alone[name]; n > 0 && !met[name] && len(names) > 1 {
			items = append(items, Item{
				What: "source " + name, Level: LevelDegraded,
				Why: fmt.Sprintf("it is required, and none of %s with a document of it has one of another source: nothing is sent of them", english.Plural(n, "entity", "entities")),
				Do:  "let all sources name an entity by the same id (weir doctor compares tables), or take it out of merge.required",
			})
		}
	}
	return items, nil
}
