package operate_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// entityList is a store's entities, by id.
type entityList []store.Entity

func (l entityList) Entities(_ context.Context, after string, limit int) (page []store.Entity, err error) {
	for _, e := range l {
		if e.ID > after && len(page) < limit {
			page = append(page, e)
		}
	}
	return page, nil
}

// A required source that shares no entity with another is told, also where its ids sort before
// all others. One that met another, or is the only one so far, is not.
func TestUnmet(t *testing.T) {
	var all entityList
	for i := range 2000 {
		all = append(all, store.Entity{ID: fmt.Sprintf("c%04d", i), Docs: []byte(`{"customers":{}}`)})
	}
	required := []string{"customers", "orders"}
	items, err := operate.Unmet(t.Context(), all, required)
	require.NoError(t, err)
	require.Empty(t, items, "orders may not have begun")
	for i := range 20 {
		all = append(all, store.Entity{ID: fmt.Sprintf("o%04d", i), Docs: []byte(`{"orders":{}}`)})
	}
	items, err = operate.Unmet(t.Context(), all, required)
	require.NoError(t, err)
	require.Len(t, items, 2)
	require.Equal(t, "source customers", items[0].What)
	require.Contains(t, items[1].Why, "none of 20 entities")
	all[len(all)-1].Docs = []byte(`{"customers":{},"orders":{}}`)
	items, err = operate.Unmet(t.Context(), all, required)
	require.NoError(t, err)
	require.Empty(t, items)
}
