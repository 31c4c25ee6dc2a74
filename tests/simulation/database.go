package simulation

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/tests/oracle"
)

// shop is the source of the table stock of a database, which the product's reader reads by logical
// replication.
const shop = "shop"

// database is a PostgreSQL cluster, as far as a reader sees it: a log of commits with timelines, and
// one replication slot. Its connections break and its primary fails over.
type database struct {
	w *world

	mu        sync.Mutex
	timeline  int32
	past      []string // lines of the history of timelines
	commits   []commit // in the order of the log
	begun     int64    // the timeline
	end       int64    // of the log
	published bool
	slot      *int64 // what the slot confirmed; nil without one
	moved     bool   // the slot, by another program, after the last session began
	snapshots map[string]int
	holder    net.Conn                   // of the lock
	conns     map[net.Conn]chan struct{} // each signalled when the log grows
	promoted  bool                       // a standby was: it may lack commits, and send older changes again
	reshapes  *dice                      // nil: the table stays what it was
	acts      int                        // that were drawn
	plain     bool                       // the table has no large values, and a schema publishes it
}

// commit is a transaction: of one row, or without an id a TRUNCATE.
type commit struct {
	lsn, end int64
	at       time.Time
	id       string
	columns  []string // id, weight, n; nil: deleted
	act      *act     // that happens with it, so that the log does not have it
	number   int      // of the act
}

// catalog has, for each part of the table's identity, the number of the act that changed it last.
type catalog map[string]int

// act is what happens to the table beside the log.
type act struct {
	name    string
	changes string // parts of the identity
	same    bool   // no row changes with it
	swapped bool   // another table has the name
}

// A row that changes while the table is out of the publication, has another schema, other partitions, a
// row filter that hides it, or is unlogged, is not in the log; and rows change without it as the table is
// rewritten, or replaced.
var acts = []act{
	{name: "table swapped", changes: "oid", swapped: true},
	{name: "table in another schema", changes: "schema"},
	{name: "table out of the publication", changes: "entry"},
	{name: "operations off and on", changes: "publication"},
	{name: "partitions changed", changes: "leaves"},
	{name: "large values rewritten", changes: "file toast"},
	{name: "table rewritten", changes: "file shape"},
	{name: "another type", changes: "type"},
	{name: "renamed for a while", changes: "name"},
	{name: "files changed", changes: "file"},
}

func newDatabase(w *world) *database {
	db := &database{w: w, timeline: 1, begun: 100, end: 100, snapshots: map[string]int{}, conns: map[net.Conn]chan struct{}{}}
	if d, reshaped, plain := w.reshapes(); reshaped {
		db.reshapes, db.plain = d, plain
	}
	return db
}

// reshapes draws whether the table changes beside the log, and which table it is; d draws what happens to it.
func (w *world) reshapes() (d *dice, reshaped, plain bool) {
	d = w.dice("reshapes")
	return d, d.chance(0.4), d.chance(0.3)
}

// catalog returns that behind so many commits.
func (db *database) catalog(commits int) catalog {
	now := catalog{}
	for _, c := range db.commits[:min(commits, len(db.commits))] {
		if c.act == nil {
			continue
		}
		for part := range strings.FieldsSeq(c.act.changes) {
			if part != db.w.rules.Hides {
				now[part] = c.number
			}
		}
	}
	return now
}

// act draws what happens to the table with a commit; nil: nothing.
func (db *database) act() *act {
	if db.reshapes == nil || !db.reshapes.chance(0.25) {
		return nil
	}
	all := slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !db.w.rules.shown(a.changes) })
	a := all[db.reshapes.n(len(all))]
	a.same = a.changes == "file" && !db.plain // VACUUM FULL; else it was unlogged meanwhile
	db.acts++
	db.w.count(a.name)
	db.w.note("act %d: %s", db.acts, a.name)
	return &a
}

// logged reports whether the log has the change of a commit.
func (db *database) logged(c commit) bool {
	return c.act == nil || c.act.same || c.act.changes == "name" && db.w.rules.Hides != "name"
}

// write commits, and may disturb the server before.
func (db *database) write(d *dice, entity string, n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	c := commit{lsn: db.end + 8, end: db.end + 16, at: time.Now(), id: entity, columns: []string{entity, fmt.Sprint(1 + d.n(3)), fmt.Sprint(n)}}
	switch roll := d.n(100); {
	case roll < 10:
		c.columns = nil
	case roll < 14:
		db.w.count("truncate")
		c.id, c.columns = "", nil
	}
	if c.act = db.act(); c.act != nil && c.act.swapped && c.id == "" {
		c.act = nil
	}
	c.number = db.acts
	db.commits, db.end = append(db.commits, c), c.end
	db.w.note("the database commits %d: %s %v", c.lsn, c.id, c.columns)
	for _, grown := range db.conns {
		signal(grown)
	}
	switch roll := d.n(100); {
	case db.w.calm.Load(), db.slot == nil:
	case roll < 5:
		db.failOver(d)
	case roll < 10:
		db.w.count("slot moved")
		*db.slot, db.moved = db.end, true
		db.w.note("the slot is moved to %d", db.end)
		db.cut()
	case roll < 20:
		db.w.count("database restarts")
		db.cut()
	}
}

// cut breaks all connections. The caller holds mu.
func (db *database) cut() {
	for c := range db.conns {
		_ = c.Close()
	}
	db.holder = nil
}

// failOver promotes a standby that lacks the last commits and has the slot. The caller holds mu.
func (db *database) failOver(d *dice) {
	db.w.count("database fails over")
	at := db.end
	db.promoted = true
	for n := len(db.commits); n > 0 && db.commits[n-1].lsn >= db.begun && d.chance(0.4); n-- {
		at = db.commits[n-1].lsn
		db.commits = db.commits[: n-1 : n-1]
	}
	if !db.w.rules.OldTimeline {
		db.past = append(db.past, fmt.Sprintf("%d\t%X/%X\tno recovery target specified\n", db.timeline, at>>32, at&0xffffffff))
		db.timeline++
	}
	db.begun, *db.slot, db.end = at, min(*db.slot, at), at+24 // the promotion has a record
	if d.chance(0.5) {
		db.end += 200
	}
	db.w.note("the database fails over: timeline %d from %d, slot %d", db.timeline, db.end, *db.slot)
	db.cut()
}

// rows returns the table behind so many commits, by id.
func (db *database) rows(commits int) map[string][]string {
	rows := map[string][]string{}
	for _, c := range db.commits[:commits] {
		if c.act != nil && c.act.swapped {
			clear(rows)
		}
		switch {
		case c.id == "":
			clear(rows)
		case c.columns == nil:
			delete(rows, c.id)
		default:
			rows[c.id] = c.columns
		}
	}
	return rows
}

func document(columns []string) string {
	if columns == nil {
		return ""
	}
	return fmt.Sprintf(`{"id":%q,"n":%s,"weight":%s}`, columns[0], columns[2], columns[1])
}

// behind says how the documents of a state differ from the rows; empty when they do not, and
// the slot has moved to the last commit.
func (db *database) behind(stored func(id string) string) string {
	db.mu.Lock()
	defer db.mu.Unlock()
	if n := len(db.commits); n > 0 && (db.slot == nil || *db.slot < db.commits[n-1].end) {
		return "the slot is behind"
	}
	rows := db.rows(len(db.commits))
	for n := range db.w.setup.entities {
		id := fmt.Sprint("B-", n)
		if want, got := document(rows[id]), stored(id); want != got {
			return fmt.Sprintf("shop, entity %s: the row is %q, its document %q", id, want, got)
		}
	}
	return ""
}

// ordered returns an error if a document is older than the one before it.
func (db *database) ordered(m *oracle.Model, id string, last map[string]int) error {
	doc, there := m.Document(id, shop)
	if !there || db.promoted {
		return nil
	}
	n, err := strconv.Atoi(fmt.Sprint(oracle.At(doc, "n")))
	if err == nil && n < last[id] {
		err = fmt.Errorf("shop, entity %s: stale: row %d came after %d", id, n, last[id])
	}
	last[id] = n
	return err
}

// names returns the ids of rows in ascending order.
func names(rows map[string][]string) []string { return slices.Sorted(maps.Keys(rows)) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
