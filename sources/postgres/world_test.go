package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// memory is a store's positions, and its row of the slot.
type memory struct {
	mu     sync.Mutex
	values map[string]store.SourcePosition
	row    store.SourceLog
	floor  store.Floor
}

func (m *memory) SourceLog(_ context.Context, log string) (store.SourceLog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.row.Version == 0 {
		return store.SourceLog{}, store.ErrNotFound
	}
	return m.row, nil
}

func (m *memory) SwapSourceLog(_ context.Context, old, next store.SourceLog, positions ...store.SourcePosition) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old.Version != m.row.Version || old.Version > 0 && old.Session != m.row.Session {
		return 0, store.ErrFenced
	}
	m.row = next
	m.row.Version = old.Version + 1
	for _, p := range positions {
		m.set(p)
	}
	return m.row.Version, nil
}

func (m *memory) Floors(_ context.Context, log string) ([]store.Floor, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.floor.Number == 0 || log != "" && log != m.floor.Log {
		return nil, nil
	}
	return []store.Floor{m.floor}, nil
}

// barrier is Options.Barrier, decided at once.
func (m *memory) barrier(_ context.Context, s change.Session, sequence string, _ func(error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.raise(s)
	if m.floor.Session == s {
		m.floor.Hear(sequence, 0)
	}
	return nil
}

func (m *memory) raise(s change.Session) {
	if s.Number > m.floor.Number {
		m.floor.Session = s
	}
	if s.Number > m.row.Number || s.Number == m.row.Number && s.Name != m.row.Name {
		m.row = store.SourceLog{Session: s, Version: m.row.Version + 1, Torn: true, State: m.row.State}
	}
}

// hears reports whether decide would take an event.
func (m *memory) hears(t testing.TB, r *transport.Received) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := change.ParseSession(r.Header(SessionHeader))
	require.NoError(t, err)
	if s.Number > m.floor.Number {
		m.raise(s)
	}
	if s != m.floor.Session {
		return false
	}
	m.floor.Hear(r.Header(SequenceHeader), r.Offset)
	return true
}

func newMemory() *memory { return &memory{values: map[string]store.SourcePosition{}} }

func (m *memory) Position(_ context.Context, source, identity string) (store.SourcePosition, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.values[source+"\x00"+identity]
	if !ok {
		return p, store.ErrNotFound
	}
	return p, nil
}

func (m *memory) SetPosition(_ context.Context, p store.SourcePosition) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(p)
	return nil
}

func (m *memory) set(p store.SourcePosition) {
	if was := m.values[p.Source+"\x00"+p.Identity]; p.Offset >= was.Offset {
		m.values[p.Source+"\x00"+p.Identity] = p
	}
}

// entity is what decide would know of an entity of a source.
type entity struct {
	at  map[string][2]int64 // by stream
	seq string
	doc map[string]json.RawMessage
}

// inbox takes frames as decide would: behind the fence, unchanged columns filled.
type inbox struct {
	mu       sync.Mutex
	changed  chan struct{}
	entities map[string]*entity // by source and id
	applied  []string           // source, id and document of each effect
	refused  []string
	frames   int
	onFrame  func(source string, frame int) // before it is durable
	maxEvent int
	crashAt  int // frame that is durable and never acknowledged; 0: none
	crashed  chan struct{}
	store    *memory
	stuck    map[string]bool // ids of a partition that takes nothing
	held     []func(ack bool)
}

func newInbox(store *memory) *inbox {
	return &inbox{store: store, changed: make(chan struct{}), entities: map[string]*entity{}, crashed: make(chan struct{})}
}

func (b *inbox) take(t testing.TB, source string, f *transport.Frame) (acknowledge bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.onFrame != nil {
		b.onFrame(source, b.frames)
	}
	for i := range f.Records {
		b.record(t, source, f.TopicID, &f.Records[i])
	}
	close(b.changed)
	b.changed = make(chan struct{})
	if b.frames++; b.frames == b.crashAt {
		close(b.crashed)
	}
	return b.crashAt == 0 || b.frames < b.crashAt
}

func (b *inbox) record(t testing.TB, source, stream string, r *transport.Received) {
	if why := r.Header(transport.RefusalHeader); why != "" {
		b.refused = append(b.refused, source+" "+why)
		return
	}
	if b.maxEvent > 0 && len(r.Value) > b.maxEvent {
		b.refused = append(b.refused, fmt.Sprintf("%s oversized: %s", source, r.Key))
		return
	}
	if !b.store.hears(t, r) {
		return
	}
	key := source + " " + string(r.Key)
	e := b.entities[key]
	if e == nil {
		e = &entity{at: map[string][2]int64{}}
		b.entities[key] = e
	}
	seq := r.Header(SequenceHeader)
	if seq < e.seq {
		return
	}
	e.seq = seq
	if at, ok := e.at[stream]; ok && (r.Offset < at[0] || r.Offset == at[0] && r.Index <= at[1]) {
		return
	}
	e.at[stream] = [2]int64{r.Offset, r.Index}
	if r.Value == nil {
		if e.doc != nil {
			b.applied = append(b.applied, key+" deleted")
		}
		e.doc = nil
		return
	}
	var doc map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(r.Value, &doc), "%s", r.Value)
	unchanged := strings.Split(r.Header(UnchangedHeader), "\n")
	for name := range doc {
		if slices.Contains(unchanged, name) {
			if e.doc[name] == nil {
				b.refused = append(b.refused, source+" unavailable: "+name)
				return
			}
			doc[name] = e.doc[name]
		}
	}
	text, was := compact(t, doc), compact(t, e.doc)
	if e.doc = doc; text != was {
		b.applied = append(b.applied, key+" "+text)
	}
}

func compact(t testing.TB, doc map[string]json.RawMessage) string {
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	return string(text)
}

// docs returns the documents of a source by id.
func (b *inbox) docs(t testing.TB, source string) map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]string{}
	for key, e := range b.entities {
		if id, ok := strings.CutPrefix(key, source+" "); ok && e.doc != nil {
			all[id] = compact(t, e.doc)
		}
	}
	return all
}

// stored is Options.Stored: everything that was taken is decided.
func (b *inbox) stored(_ context.Context, source, after string) ([]string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for key, e := range b.entities {
		if id, ok := strings.CutPrefix(key, source+" "); ok && e.doc != nil && id > after {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids[:min(len(ids), 3)], nil
}

// decided is Options.Decided: everything that was appended is.
func (b *inbox) decided(context.Context) error { return nil }

// setAside takes the records of a frame but those that are stuck, which it sets aside, and reports
// whether there are any. release answers for them.
func (b *inbox) setAside(t testing.TB, source string, m *message.Message, f *transport.Frame) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []int
	for i := range f.Records {
		if b.stuck[string(f.Records[i].Key)] {
			left = append(left, i)
		}
	}
	if left == nil {
		return false
	}
	for i := range f.Records {
		if !slices.Contains(left, i) {
			b.record(t, source, f.TopicID, &f.Records[i])
		}
	}
	require.True(t, f.SetAside(left))
	b.held = append(b.held, func(ack bool) {
		if !ack {
			m.Nack()
			return
		}
		for _, i := range left {
			b.record(t, source, f.TopicID, &f.Records[i])
		}
		m.Ack()
	})
	close(b.changed)
	b.changed = make(chan struct{})
	return true
}

// stick lets the partition of some ids take nothing.
func (b *inbox) stick(ids ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stuck = map[string]bool{}
	for _, id := range ids {
		b.stuck[id] = true
	}
}

// waiting counts the frames that were set aside.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// release lets the partition take records again. Those that were set aside are appended, or refused.
func (b *inbox) release(ack bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.held
	b.held, b.stuck = nil, nil
	for _, answer := range held {
		answer(ack)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// wait waits until ok, which it asks after every frame.
func (b *inbox) wait(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("%s did not happen; applied: %v, refused: %v", what, b.applied[max(0, len(b.applied)-10):], b.refused)
		}
	}
}

// shop is a database.
type shop struct {
	t         testing.TB
	url       string
	conn      *pgx.Conn
	positions *memory
	inbox     *inbox
	options   Options
}

// newShop makes a database on a server, with tables.
func newShop(t testing.TB, server string, entities map[string][]string, sql ...string) *shop {
	t.Helper()
	name := "shop_" + newEpoch()
	admin, err := pgx.Connect(t.Context(), server)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+name)
	require.NoError(t, err)
	require.NoError(t, admin.Close(t.Context()))
	u, err := url.Parse(server)
	require.NoError(t, err)
	u.Path = "/" + name
	s := &shop{t: t, url: u.String(), positions: newMemory()}
	s.inbox = newInbox(s.positions)
	s.conn, err = pgx.Connect(t.Context(), s.url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.conn.Close(context.Background()) })
	for _, q := range sql {
		s.exec(q)
	}
	tables := []string{}
	for table := range entities {
		tables = append(tables, table)
	}
	s.options = Options{
		Setup:    Setup{URL: s.url, Slot: name, Publication: name, Tables: tables, Source: "shop"},
		Entities: entities, Positions: s.positions, Logs: s.positions, Barrier: s.positions.barrier, Stored: s.inbox.stored, Decided: s.inbox.decided, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	return s
}

func (s *shop) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err, sql)
}

// running is a reader with consumers.
type running struct {
	reader  *Reader
	sources []*Source
	done    sync.WaitGroup
}

// start reads, each table into a source of its own name.
func (s *shop) start() *running {
	s.t.Helper()
	names := map[string]string{}
	for table := range s.options.Entities {
		names[table] = strings.TrimPrefix(table, "public.")
	}
	r := &running{reader: NewReader(s.options, names)}
	for table, name := range names {
		source := r.reader.Source(table)
		messages, err := source.Subscribe(s.t.Context(), source.Topic())
		require.NoError(s.t, err)
		r.sources = append(r.sources, source)
		r.done.Go(func() {
			for m := range messages {
				s.consume(name, m)
			}
		})
	}
	return r
}

func (s *shop) consume(name string, m *message.Message) {
	f, ok := transport.FrameOf(m)
	require.True(s.t, ok)
	if s.inbox.setAside(s.t, name, m, f) {
		return
	}
	if s.inbox.take(s.t, name, f) {
		m.Ack()
	} else {
		m.Nack()
	}
}

func (r *running) stop() {
	for _, source := range r.sources {
		_ = source.Close()
	}
	r.done.Wait()
}

// drain waits until everything that was committed is durable.
func (s *shop) drain(r *running) {
	s.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		done, err := r.sources[0].Drained(s.t.Context())
		if done {
			require.NoError(s.t, err)
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not drained: %v, %v", err, r.sources[0].Failing())
		}
	}
}

// read reads all rows and changes, in a session of its own.
func (s *shop) read() {
	s.t.Helper()
	r := s.start()
	s.drain(r)
	r.stop()
}

// prepare completes the setup, again with a new slot.
func (s *shop) prepare(again bool) {
	s.t.Helper()
	statements, err := s.options.Setup.Prepare(s.t.Context(), false, again, nil)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, statements)
}

// rows returns the documents of a table's rows, as the source makes them, by a column.
func (s *shop) rows(table, key string) map[string]string {
	s.t.Helper()
	all := map[string]string{}
	rows, err := s.conn.Query(s.t.Context(), fmt.Sprintf("SELECT %s::text, to_json(t)::text FROM %s t", key, table))
	require.NoError(s.t, err)
	var id, text string
	_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		var doc map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			return err
		}
		all[id] = compact(s.t, doc)
		return nil
	})
	require.NoError(s.t, err)
	return all
}

func ownServer(t testing.TB) string { return servers.StartOwn(t, "postgres").Address }
