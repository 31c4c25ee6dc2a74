package simulation

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// connection is a connection to the database, in PostgreSQL's protocol.
type connection struct {
	db       *database
	c        net.Conn
	b        *pgproto3.Backend
	dice     *dice
	grown    chan struct{} // capacity 1
	asked    chan struct{} // capacity 1: for the end of the log
	snapshot int           // commits that its transaction sees; of none: -1
	held     catalog       // of the table when it was locked
	reads    bool          // rows, which may take any time: TCP alone notices the server's end
}

// dial is the network between a process and the database.
func (p *process) dial(context.Context, string, string) (net.Conn, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	db, ours := p.w.database, &connection{db: p.w.database, snapshot: -1, grown: make(chan struct{}, 1), asked: make(chan struct{}, 1)}
	client, server := net.Pipe()
	context.AfterFunc(p.ctx, func() { _ = client.Close() })
	ours.c, ours.b = server, pgproto3.NewBackend(server, server)
	db.mu.Lock()
	defer db.mu.Unlock()
	db.conns[server] = ours.grown
	p.dials++
	ours.dice = p.w.dice(p.name+" dials", p.dials)
	p.w.spawn(func() {
		ours.serve()
		_ = server.Close()
		ours.forget()
	})
	return client, nil
}

// serve answers until the connection ends.
func (c *connection) serve() {
	if _, err := c.b.ReceiveStartupMessage(); err != nil {
		return
	}
	c.b.Send(&pgproto3.AuthenticationOk{})
	c.b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if c.b.Flush() != nil {
		return
	}
	var sql string
	var params [][]byte
	for {
		m, err := c.b.Receive()
		if err != nil {
			return
		}
		switch m := m.(type) {
		case *pgproto3.Query:
			if strings.HasPrefix(m.String, "START_REPLICATION") {
				c.replicate()
				return
			}
			c.answer(m.String, nil)
			c.b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		case *pgproto3.Parse:
			sql = m.Query
			c.b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Bind:
			params = m.Parameters
			c.b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Describe:
			c.answer(sql, params)
		case *pgproto3.Sync:
			c.b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
		switch m.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			time.Sleep(c.dice.upTo(4 * time.Millisecond))
			if c.breaks() || c.b.Flush() != nil {
				return
			}
		}
	}
}

// breaks draws whether the connection ends now, or for the server alone: the client hears nothing more.
func (c *connection) breaks() bool {
	if !c.db.w.fault(c.dice, "connection breaks", 0.2) {
		return false
	}
	if !c.reads && c.dice.chance(0.3) {
		c.db.w.count("connection is silent")
		c.forget()
		_, _ = io.Copy(io.Discard, c.c)
	}
	return true
}

// forget takes the connection from the server.
func (c *connection) forget() {
	c.db.mu.Lock()
	defer c.db.mu.Unlock()
	if delete(c.db.conns, c.c); c.db.holder == c.c {
		c.db.holder = nil
	}
}

// Types of columns.
const (
	boolean = 16
	bigint  = 20
	text    = 25
	double  = 701
	oid     = 26
	texts   = 1009

	timestamptz = 1184
)

// numbers are types of the column n, one after the other.
var numbers = []uint32{bigint, 23, 21, oid, double}

// answer answers a statement.
func (c *connection) answer(sql string, params [][]byte) {
	types, rows := c.rows(sql, params)
	if types == nil {
		c.b.Send(&pgproto3.NoData{})
		c.b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
		return
	}
	d := &pgproto3.RowDescription{}
	for i, t := range types {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte(strconv.Itoa(i)), DataTypeOID: t, DataTypeSize: -1, TypeModifier: -1})
	}
	c.b.Send(d)
	for _, row := range rows {
		values := &pgproto3.DataRow{}
		for _, v := range row {
			if v == nil {
				values.Values = append(values.Values, nil)
			} else {
				values.Values = append(values.Values, fmt.Append([]byte{}, v))
			}
		}
		c.b.Send(values)
	}
	c.b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT")})
}

// one is a table of a single row.
func one(types []uint32, row ...any) ([]uint32, [][]any) { return types, [][]any{row} }

// rows executes a statement of the reader; nil types: it has no result.
func (c *connection) rows(sql string, params [][]byte) (types []uint32, rows [][]any) {
	db := c.db
	db.mu.Lock()
	defer db.mu.Unlock()
	has := func(part string) bool { return strings.Contains(sql, part) }
	now := db.catalog(len(db.commits))
	if c.snapshot >= 0 {
		now = db.catalog(c.snapshot)
	}
	c.reads = c.reads || has("BEGIN") || has("CREATE_REPLICATION_SLOT") || has("format_type")
	switch {
	case has("server_version_num"):
		return one([]uint32{bigint, text, text, boolean, oid, bigint}, 170000, "logical", "shop", "f", 1, db.end)
	case has("pg_try_advisory_lock"):
		if db.holder == nil {
			db.holder = c.c
		}
		return one([]uint32{boolean}, map[bool]string{true: "t", false: "f"}[db.holder == c.c])
	case has("txid_visible_in_snapshot"): // later than in the log
		return one([]uint32{boolean}, map[bool]string{true: "t", false: "f"}[!db.w.fault(c.dice, "commit not visible", 0.3)])
	case has("'transactionid'"):
		return []uint32{bigint, timestamptz}, nil
	case has("FROM pg_stat_activity"):
		types = []uint32{bigint, text, text, timestamptz}
		if db.holder == nil || db.holder == c.c {
			return types, nil
		}
		return one(types, 1, "another", "this server", "2026-01-01 00:00:00+00")
	case sql == "IDENTIFY_SYSTEM":
		return one([]uint32{text, bigint, text, text}, "7", db.timeline, lsnText(db.end), "shop")
	case has("TIMELINE_HISTORY"):
		return one([]uint32{text, text}, "history", strings.Join(db.past, ""))
	case has("FROM pg_replication_slots"):
		types = []uint32{text, text, text, bigint, bigint, boolean}
		if db.slot == nil {
			return types, nil
		}
		at := *db.slot
		if db.moved && db.w.rules.HiddenMove {
			at = 0
		}
		return one(types, "pgoutput", "shop", "", at, 0, "t")
	case has("pg_create_logical_replication_slot"):
		at := db.end
		db.slot = &at
		return one([]uint32{text}, "weir")
	case has("FROM pg_publication WHERE"):
		return one([]uint32{boolean}, map[bool]string{true: "t", false: "f"}[db.published])
	case has("LOCK TABLE"):
		c.held = db.catalog(len(db.commits))
	case has("FROM pg_class c JOIN pg_namespace"):
		toast := 1 + now["toast"]
		if db.plain {
			toast = 0
		}
		return one([]uint32{oid, text, text, oid, oid, boolean, boolean, boolean, boolean, text, text, double, text}, 1+now["oid"], "r", "p", now["file"], toast, "f", "f", "t", "f", "1",
			now["schema"], 3, now["leaves"])
	case has("FROM pg_publication p"):
		if types = []uint32{text, boolean, boolean, boolean, boolean, boolean, text, text, boolean, boolean, texts, text}; !db.published {
			return types, nil
		}
		own, whole := fmt.Sprint(now["entry"]), ""
		if db.plain && db.w.rules.Hides != "listed" {
			own, whole = "", own
		}
		return one(types, now["publication"], "f", "t", "t", "t", "t", own, whole, "f", "t", nil, "")
	case has("FROM pg_attribute a"):
		shape := now["shape"]
		return []uint32{text, bigint, oid, text, text, text, boolean, boolean},
			[][]any{{"id", 1, text, shape, "25.-1.0", "", "t", "t"}, {"weight", 2, bigint, shape, "20.-1.0", "", "f", "f"}, {"n", 3, numbers[now["type"]%len(numbers)], shape, "20.-1.0", "", "f", "f"}}
	case has("format_type"):
		return one([]uint32{text}, "text")
	case has("PUBLICATION"):
		db.published = true
	case has("CREATE_REPLICATION_SLOT"):
		name := fmt.Sprint("snapshot ", len(db.snapshots))
		db.snapshots[name] = len(db.commits)
		if db.w.rules.OldSnapshot {
			db.snapshots[name] = max(0, len(db.commits)-1)
		}
		db.w.note("a snapshot of %d commits at %d", db.snapshots[name], db.end)
		return one([]uint32{text, text, text, text}, "temporary", lsnText(db.end), name, "pgoutput")
	case has("SET TRANSACTION SNAPSHOT"):
		_, name, _ := strings.Cut(sql, "'")
		c.snapshot = db.snapshots[strings.TrimSuffix(name, "'")]
	case has(`FROM "public"."stock"`):
		types = []uint32{text, bigint, bigint}
		all := db.rows(min(c.snapshot, len(db.commits)))
		if was := c.held; was["oid"] != now["oid"] || was["file"] != now["file"] { // rewritten before it was locked
			return types, nil
		}
		for _, id := range names(all) {
			if len(params) == 0 || id > string(params[0]) {
				rows = append(rows, []any{all[id][0], all[id][1], all[id][2]})
			}
		}
	}
	return types, rows
}

func lsnText(at int64) string { return fmt.Sprintf("%X/%X", at>>32, at&0xffffffff) }

// replicate sends commits from the slot on, and applies the confirmations of the reader.
func (c *connection) replicate() {
	c.b.Send(&pgproto3.CopyBothResponse{})
	if c.b.Flush() != nil {
		return
	}
	db := c.db
	db.mu.Lock()
	next := *db.slot // end of what was sent
	db.moved = false
	db.mu.Unlock()
	db.w.note("the slot is read from %d", next)
	ended := make(chan struct{})
	db.w.spawn(func() { defer close(ended); c.confirmed() })
	alive := time.NewTicker(400 * time.Millisecond)
	defer alive.Stop()
	described := ""
	for {
		db.mu.Lock()
		var due []commit
		for _, m := range db.commits {
			if m.lsn >= next && db.logged(m) {
				due = append(due, m)
			}
		}
		end, tables := db.end, make([]table, len(due))
		for i, m := range due {
			tables[i] = db.tableOf(m)
		}
		db.mu.Unlock()
		for i, m := range due {
			time.Sleep(c.dice.upTo(4 * time.Millisecond))
			messages := m.messages(tables[i].oid)
			if relation := tables[i].relation(); string(relation) != described {
				messages = slices.Insert(messages, 1, relation)
				described = string(relation)
			}
			for _, message := range messages {
				c.sendLog(message)
			}
			if c.breaks() || c.b.Flush() != nil {
				return
			}
			next = m.end
		}
		select {
		case <-c.grown:
			continue
		case <-ended:
			return
		case <-c.asked:
		case <-alive.C:
		}
		if next < end {
			next = end
		}
		keep := append([]byte{'k'}, make([]byte, 17)...)
		binary.BigEndian.PutUint64(keep[1:], uint64(end))
		c.b.Send(&pgproto3.CopyData{Data: keep})
		if c.b.Flush() != nil {
			return
		}
	}
}

// confirmed moves the slot until the connection ends.
func (c *connection) confirmed() {
	for {
		m, err := c.b.Receive()
		if err != nil {
			return
		}
		status, ok := m.(*pgproto3.CopyData)
		if !ok || len(status.Data) < 34 || status.Data[0] != 'r' {
			return
		}
		c.db.mu.Lock()
		if _, open := c.db.conns[c.c]; open {
			*c.db.slot = max(*c.db.slot, int64(binary.BigEndian.Uint64(status.Data[9:])))
			c.db.w.note("the slot is confirmed to %d", *c.db.slot)
		}
		c.db.mu.Unlock()
		if status.Data[33] == 1 {
			signal(c.asked)
		}
	}
}

func (c *connection) sendLog(message []byte) {
	data := append([]byte{'w'}, make([]byte, 24)...)
	c.b.Send(&pgproto3.CopyData{Data: append(data, message...)})
}

// table is the table as a commit changed it.
type table struct {
	name string
	oid  uint32
	typ  uint32 // of the column n
}

// tableOf returns the table of a commit. The caller holds mu.
func (db *database) tableOf(m commit) table {
	n := slices.IndexFunc(db.commits, func(c commit) bool { return c.lsn == m.lsn })
	now := db.catalog(n + 1)
	t := table{"stock", uint32(1 + now["oid"]), numbers[now["type"]%len(numbers)]}
	if m.act != nil && m.act.changes == "name" {
		t.name = "away"
	}
	return t
}

// relation describes the table.
func (t table) relation() []byte {
	m := binary.BigEndian.AppendUint32([]byte{'R'}, t.oid)
	m = append(m, "public\x00"+t.name+"\x00d\x00\x03"...)
	for i, column := range []string{"id", "weight", "n"} {
		m = append(m, map[bool]byte{true: 1}[i == 0])
		m = append(append(m, column...), 0)
		m = binary.BigEndian.AppendUint32(m, []uint32{text, bigint, t.typ}[i])
		m = binary.BigEndian.AppendUint32(m, 0xffffffff)
	}
	return m
}

// messages are those of pgoutput.
func (m commit) messages(table uint32) [][]byte {
	at := uint64(m.at.UnixMicro() - 946684800*1_000_000)
	begin := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(m.lsn))
	begin = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(begin, at), 1)
	end := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(m.lsn))
	end = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(end, uint64(m.end)), at)
	id := binary.BigEndian.AppendUint32(nil, table)
	tuple := []byte{0, 3}
	for i, column := range []string{m.id, "", ""} {
		if m.columns != nil {
			column = m.columns[i]
		} else if i > 0 {
			tuple = append(tuple, 'n')
			continue
		}
		tuple = append(binary.BigEndian.AppendUint32(append(tuple, 't'), uint32(len(column))), column...)
	}
	change := append(append([]byte{'I'}, id...), append([]byte{'N'}, tuple...)...)
	switch {
	case m.id == "":
		change = append([]byte{'T', 0, 0, 0, 1, 0}, id...)
	case m.columns == nil:
		change = append(append([]byte{'D'}, id...), append([]byte{'K'}, tuple...)...)
	}
	return [][]byte{begin, change, end}
}
