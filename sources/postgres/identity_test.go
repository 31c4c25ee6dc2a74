package postgres

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every part of a table's identity shows that its rows are other ones, or which part does not. That the
// catalog has these parts is shown by TestTablesThatChangeShape.
func TestIdentity(t *testing.T) {
	was := identity{OID: 1, Schema: "1", File: 1, Toast: 1, Shape: "1", Publication: "1", Entry: "1", Types: map[int16]string{1: "int", 2: "text"}, Leaves: "1", Key: "id int", Entity: []string{"id"}}
	plain := was
	plain.Toast = 0
	for name, c := range map[string]struct {
		was    identity
		change func(is *identity)
		differ string // part of the reason
		other  bool   // it is another state, whose changes go on
	}{
		"the same":                          {was, func(*identity) {}, "", false},
		"another OID":                       {was, func(is *identity) { is.OID++ }, "another table", false},
		"another schema":                    {was, func(is *identity) { is.Schema = "2" }, "another schema", false},
		"another entity":                    {was, func(is *identity) { is.Entity = []string{"code"} }, "its entity was [id] and is [code]", false},
		"another publication":               {was, func(is *identity) { is.Publication = "2" }, "publication was altered", false},
		"another entry":                     {was, func(is *identity) { is.Entry = "2" }, "left the publication", false},
		"another leaf":                      {was, func(is *identity) { is.Leaves = "2" }, "partitions", false},
		"another type":                      {was, func(is *identity) { is.Types[2] = "varchar" }, "column 2 has another type", false},
		"a rewrite with other large values": {was, func(is *identity) { is.File, is.Toast = 2, 2 }, "rewritten", false},
		"a rewrite with another column":     {was, func(is *identity) { is.File, is.Shape = 2, "2" }, "rewritten", false},
		"a rewrite of a table that may be unlogged":   {plain, func(is *identity) { is.File = 2 }, "rewritten", false},
		"a rewrite of one that is listed":             {plain, func(is *identity) { is.File, is.Listed = 2, true }, "", true},
		"VACUUM FULL":                                 {was, func(is *identity) { is.File = 2 }, "", true},
		"another column":                              {was, func(is *identity) { is.Shape, is.Types[3] = "2", "text" }, "", true},
		"one column fewer":                            {was, func(is *identity) { is.Shape = "2"; delete(is.Types, 2) }, "", true},
		"another key":                                 {was, func(is *identity) { is.Key = "code text" }, "", true},
		"an index of large values, and no other file": {was, func(is *identity) { is.Toast = 2 }, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			is := c.was
			is.Types = maps.Clone(is.Types)
			c.change(&is)
			if c.differ == "" {
				require.Empty(t, c.was.differs(is))
			} else {
				require.Contains(t, c.was.differs(is), c.differ)
			}
			require.Equal(t, c.differ == "" && !c.other, c.was.same(is))
		})
	}
}

func TestTextOfOpenTransactions(t *testing.T) {
	const open = "a slot cannot be made before the transactions end that are open"
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for want, e := range map[string]*openError{
		open:                              {},
		open + ": the oldest is of pid 7": {pid: 7},
		open + ": the oldest is of pid 7, since 2026-03-01T08:00:00Z":                           {pid: 7, since: at},
		open + ": the oldest is a prepared one (pg_prepared_xacts), since 2026-03-01T08:00:00Z": {prepared: true, since: at},
	} {
		require.EqualError(t, e, want)
		require.Equal(t, !e.since.IsZero(), e.old())
	}
}
