package harness

import (
	"database/sql"
	"net/url"

	_ "github.com/ncruces/go-sqlite3/driver" // as sqlite3
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// Age makes the entities of a project whose process has ended old: its services have had them for longer
// than any window of the guard.
func (p Project) Age() {
	p.T.Helper()
	db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: p.Path("data/state.db")}).EscapedPath())
	require.NoError(p.T, err)
	defer func() { require.NoError(p.T, db.Close()) }()
	pages := map[string][]byte{}
	rows, err := db.QueryContext(p.T.Context(), "SELECT id, states FROM entities WHERE states IS NOT NULL")
	require.NoError(p.T, err)
	for rows.Next() {
		var id string
		var page []byte
		require.NoError(p.T, rows.Scan(&id, &page))
		var states store.States
		require.NoError(p.T, states.Add(0, page))
		for _, r := range states.All(id) {
			r.Entered = 1
			states.Set(r)
		}
		pages[id] = states.Changed()[0].Body
	}
	require.NoError(p.T, rows.Err())
	require.NoError(p.T, rows.Close())
	for id, page := range pages {
		_, err := db.ExecContext(p.T.Context(), "UPDATE entities SET states = ? WHERE id = ?", page, id)
		require.NoError(p.T, err)
	}
	_, err = db.ExecContext(p.T.Context(), "VACUUM") // of a page that is changed by hand the checksum is not right
	require.NoError(p.T, err)
}
