package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// DamRows checks the view that takes dam states apart for people. query runs SQL that
// returns lines.
func DamRows(t *testing.T, s store.Store, query func(sql string) []string) {
	t.Helper()
	f := &fixture{T: t, a: s, b: s}
	first, last := f.many()
	hash := append(change.Content{2, 0xab, 0xcd}, make([]byte, 30)...)
	f.put(
		store.Row{Key: store.Key{Service: first, Entity: "a"}, Content: hash, Version: change.NewVersion(3, 77)},
		store.Row{Key: store.Key{Service: first, Entity: "b"}, Content: change.Retracted(), Version: change.NewVersion(32767, 1<<48-1)},
		store.Row{Key: store.Key{Service: first, Entity: "c"}, Version: change.NewVersion(1, 5)},
		store.Row{Key: store.Key{Service: last, Entity: "d"}, Content: hash, Refused: true, Version: change.NewVersion(1, 6), Entered: change.MaxEntered},
		store.Row{Key: store.Key{Service: last - 1, Entity: "d"}, Content: hash, Version: change.NewVersion(1, 7), Entered: 0x010203})
	const digest = "abcd000000000000000000000000000000000000000000000000000000000000"
	require.Equal(t, []string{
		"s000 a upsert 2 " + digest + " 3 77",
		"s000 b retracted - - 32767 281474976710655",
		"s000 c unknown - - 1 5",
		"s065 d upsert 2 " + digest + " 1 7",
		"s066 d refused 2 " + digest + " 1 6",
	}, query(`SELECT service || ' ' || entity || ' ' || state || ' ' || coalesce(CAST(scheme AS text), '-') || ' ' || coalesce(hash, '-') || ' ' || generation || ' ' || "offset"
		FROM dam_rows ORDER BY entity, service`))
	assert.Empty(t, query(`SELECT service FROM dam_rows WHERE entity = 'x'`))
}
