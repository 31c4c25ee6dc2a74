package postgres

import (
	"fmt"
	"maps"
	"slices"
)

// identity is the table behind a name, and the part of its rows that the publication sends. Rows
// that were read belong to one identity. A catalog row's xmin tells what changed twice. Names do
// not belong to it: a column is its number.
type identity struct {
	OID uint32 `json:"oid"`
	// Schema is the xmin of its place in the schema.
	Schema string `json:"schema"`
	// File is the relfilenode, Toast the OID of the table of its large values, and Shape the xmin of
	// each column: a rewrite by ALTER TABLE changes a file and one of the others, VACUUM FULL and
	// CLUSTER the file alone.
	File  uint32 `json:"file"`
	Toast uint32 `json:"toast"`
	Shape string `json:"shape"`
	// Publication and Entry are OID and xmin, of the publication and of what publishes the table there.
	Publication string `json:"publication"`
	Entry       string `json:"entry"`
	// Listed says that the entry is the table's own: such a table cannot become unlogged.
	Listed bool             `json:"listed"`
	Types  map[int16]string `json:"types"` // by column that is published; with a mark if it is generated
	// Values are the labels of enums and the attributes of composite types in columns, by OID: ALTER
	// TYPE changes how rows look, and the log has no change.
	Values map[string]string `json:"values,omitempty"`
	Leaves string            `json:"leaves,omitempty"`
	Key    string            `json:"key"`    // primary key, with types and collations
	Entity []string          `json:"entity"` // columns, as configured
}

// differs returns why the rows of the table that was read are not those of the present one by the
// log alone; empty if the log has every difference. A column that is added without a rewrite is none;
// see columnNames for the others.
func (was identity) differs(is identity) string {
	switch {
	case was.OID != is.OID:
		return "another table has its name: it was dropped and created, or one was renamed into place"
	case was.Schema != is.Schema:
		return "the table was in another schema"
	case !slices.Equal(was.Entity, is.Entity):
		return fmt.Sprintf("its entity was %v and is %v", was.Entity, is.Entity)
	case was.Publication != is.Publication:
		return "the publication was altered or created again"
	case was.Entry != is.Entry:
		return "the table left the publication and came back, or its row filter or column list changed"
	case was.Leaves != is.Leaves:
		return "partitions were attached, detached, dropped, truncated or rewritten"
	case was.rewritten(is):
		return "the table was rewritten (ALTER TABLE)"
	}
	for _, number := range slices.Sorted(maps.Keys(was.Types)) {
		if now, there := is.Types[number]; there && now != was.Types[number] {
			return fmt.Sprintf("column %d has another type", number)
		}
	}
	for name, value := range was.Values {
		if is.Values[name] != value {
			return "labels of an enum, or attributes of a type, are others (ALTER TYPE)"
		}
	}
	return ""
}

// rewritten reports whether a rewrite may have changed rows. A table without large values that a
// whole schema or database publishes may have been unlogged meanwhile.
func (was identity) rewritten(is identity) bool {
	return was.File != is.File && (was.Toast != is.Toast || was.Shape != is.Shape || is.Toast == 0 && !is.Listed)
}

// same reports whether both are one state of one table.
func (was identity) same(is identity) bool {
	return was.differs(is) == "" && was.File == is.File && was.Shape == is.Shape && was.Key == is.Key
}

// columnNames are the names that columns had since the rows were read, by number.
type columnNames map[int16][]string

// learn adds names and reports whether one is new.
func (c columnNames) learn(now map[string]int16) (news bool) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if number := now[name]; !slices.Contains(c[number], name) {
			c[number], news = append(c[number], name), true
		}
	}
	return news
}

// breaks returns why stored documents have a column that is gone, or may have the value of one column
// under the name of another; empty if columns were added or renamed at most.
func (c columnNames) breaks(now map[string]int16) string {
	numbers := slices.Sorted(maps.Values(now))
	for _, number := range slices.Sorted(maps.Keys(c)) {
		if _, there := slices.BinarySearch(numbers, number); !there {
			return fmt.Sprintf("column %q was dropped", c[number][0])
		}
		for _, name := range c[number] {
			if other, there := now[name]; there && other != number {
				return fmt.Sprintf("column %q is another one, which had another name or was not there", name)
			}
		}
	}
	return ""
}

// doubtful reports for each column of a row, as the log names them in the order of their numbers,
// whether a stored document may have its value under another name. It is false for ok if the names have
// no such order: columns were dropped, or exchanged names for a while.
func (c columnNames) doubtful(names []string) (doubtful []bool, ok bool) {
	doubtful = make([]bool, len(names))
	last := int16(0)
	for i, name := range names {
		var numbers []int16
		for number, all := range c {
			if slices.Contains(all, name) {
				numbers = append(numbers, number)
			}
		}
		if len(numbers) != 1 || numbers[0] < last {
			return nil, false
		}
		last = numbers[0]
		doubtful[i] = len(c[last]) > 1
	}
	return doubtful, true
}
