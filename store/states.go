package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/change"
)

// PageServices is how many services a page of dam states is for: page n has those
// with the numbers from n*PageServices on. Page 0 is in the row of the entity.
const PageServices = 1 << pageBits

const pageBits = 5

// Layout of a state in a page: the service's number within the page with the kind of the content, when
// the entity entered the service, the version, the content, zero where the kind says all. All are as
// wide, so that SQL can take them apart.
const (
	stateSize   = 1 + 3 + 8 + contentSize
	contentSize = 33 // a scheme and a digest

	slotBits     = PageServices - 1
	kindBits     = 3 << pageBits
	unknownKind  = 0 << pageBits
	retractKind  = 1 << pageBits
	documentKind = 2 << pageBits
	refusedBit   = 1 << 7
)

// PageOf returns the page that has a service's states.
func PageOf(service int32) int32 { return service >> pageBits }

// Page is the stored form of the states of one entity for some services, in the
// order of these. Its body is never changed in place once it was given away.
type Page struct {
	Number int32
	Body   []byte
}

// States are the dam states of one entity. The zero value has none. They may be
// copied until one is set; methods must not be called concurrently with Set.
type States struct {
	pages   []Page
	changed []bool // of pages; nil when none is
}

// Add takes a page as it is stored, which it keeps; each page once.
func (s *States) Add(number int32, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	broken := len(body)%stateSize != 0 || number < 0
	for i, last := 0, -1; i < len(body) && !broken; i += stateSize {
		slot := int(body[i] & slotBits)
		broken = slot <= last || body[i]&kindBits == kindBits
		last = slot
	}
	at, twice := s.page(number)
	if broken || twice {
		return WithClass(fmt.Errorf("page %d of dam states cannot be read", number), Fatal)
	}
	s.pages = slices.Insert(s.pages, at, Page{number, body})
	if s.changed != nil {
		s.changed = slices.Insert(s.changed, at, false)
	}
	return nil
}

func (s *States) page(number int32) (at int, found bool) {
	if n := int(number); n >= 0 && n < len(s.pages) && s.pages[n].Number == number { // all pages before it exist
		return n, true
	}
	return slices.BinarySearchFunc(s.pages, number, func(p Page, n int32) int { return cmp.Compare(p.Number, n) })
}

// slot returns where the state of a service is in a page, or has to be.
func slot(body []byte, service int32) (at int, found bool) {
	want := byte(service & slotBits)
	if at = int(want) * stateSize; at < len(body) && body[at]&slotBits == want { // all states before it exist
		return at, true
	}
	for at = 0; at < len(body); at += stateSize {
		if has := body[at] & slotBits; has >= want {
			return at, has == want
		}
	}
	return at, false
}

// Get returns the state of a service, without its entity; Found is false when there
// is none. Its content is good until a state is set.
func (s *States) Get(service int32) Row {
	if p, ok := s.page(PageOf(service)); ok {
		if at, ok := slot(s.pages[p].Body, service); ok {
			return decodeState(s.pages[p].Number, s.pages[p].Body[at:])
		}
	}
	return Row{Key: Key{Service: service}}
}

var retracted = change.Retracted() //nolint:gochecknoglobals // never written

func decodeState(page int32, b []byte) Row {
	r := Row{Key: Key{Service: page*PageServices + int32(b[0]&slotBits)}, Found: true, Refused: b[0]&refusedBit != 0,
		Entered: change.Entered(b[1])<<16 | change.Entered(b[2])<<8 | change.Entered(b[3]), Version: change.Version(binary.BigEndian.Uint64(b[4:]))}
	switch b[0] & kindBits {
	case retractKind:
		r.Content = retracted
	case documentKind:
		r.Content = change.Content(b[12:stateSize:stateSize])
	}
	return r
}

// spareStates is how many states a page makes room for at a time.
const spareStates = 4

// Set notes the state of r's service. A content is nil, a retraction or a hash with
// its scheme: any other is a programming error and panics.
func (s *States) Set(r Row) {
	kind := byte(documentKind)
	switch {
	case r.Content == nil:
		kind = unknownKind
	case r.Content.IsRetracted():
		kind = retractKind
	case len(r.Content) != contentSize:
		panic(fmt.Sprintf("store: impossible dam state: a content of %d bytes", len(r.Content)))
	}
	number := PageOf(r.Service)
	p, found := s.page(number)
	if s.changed == nil {
		s.changed = make([]bool, len(s.pages), len(s.pages)+1)
		s.pages = slices.Clone(s.pages)
	}
	if !found {
		s.pages, s.changed = slices.Insert(s.pages, p, Page{Number: number}), slices.Insert(s.changed, p, false)
	}
	body := s.pages[p].Body
	at, found := slot(body, r.Service)
	var content [contentSize]byte // r's may stand in body
	copy(content[:], r.Content)
	switch own := s.changed[p]; {
	case !found && own && len(body)+stateSize <= cap(body):
		body = body[:len(body)+stateSize]
		copy(body[at+stateSize:], body[at:])
	case !found:
		room := stateSize
		if own { // more may follow
			room = spareStates * stateSize
		}
		grown := make([]byte, len(body)+stateSize, len(body)+room)
		copy(grown, body[:at])
		copy(grown[at+stateSize:], body[at:])
		body = grown
	case !own:
		body = bytes.Clone(body)
	}
	b := body[at : at+stateSize]
	clear(b)
	if b[0] = byte(r.Service&slotBits) | kind; r.Refused {
		b[0] |= refusedBit
	}
	b[1], b[2], b[3] = byte(r.Entered>>16), byte(r.Entered>>8), byte(r.Entered)
	binary.BigEndian.PutUint64(b[4:], uint64(r.Version))
	if kind == documentKind {
		copy(b[12:], content[:])
	}
	s.pages[p].Body, s.changed[p] = body, true
}

// All returns the states of an entity in the order of their services.
func (s *States) All(entity string) []Row {
	var rows []Row
	for _, p := range s.pages {
		for at := 0; at < len(p.Body); at += stateSize {
			r := decodeState(p.Number, p.Body[at:])
			r.Entity = entity
			rows = append(rows, r)
		}
	}
	return rows
}

// AnyChanged reports whether a state was set.
func (s *States) AnyChanged() bool { return slices.Contains(s.changed, true) }

// Changed returns the pages in which a state was set, in their order.
func (s *States) Changed() []Page {
	var pages []Page
	for i, changed := range s.changed {
		if changed {
			pages = append(pages, s.pages[i])
		}
	}
	return pages
}

// Stored returns the states as they are once they were written.
func (s States) Stored() States { return States{pages: s.pages} }

// Size is how many bytes the pages have.
func (s *States) Size() (n int) {
	for _, p := range s.pages {
		n += len(p.Body)
	}
	return n
}

var errTwice = errors.New("an entity is written twice in one transaction")

// Write is the writes of an outcome's entities, sorted by statement.
type Write struct {
	Insert, Update []*Entity // in the order of their ids
	Pages          []EntityPage
}

// EntityPage is a page that is not in its entity's row.
type EntityPage struct {
	Entity string
	Page
}

// Without returns the states of a page without the states of some services, and how many these
// were.
func (p *EntityPage) Without(services []int32) (body []byte, dropped int) {
	for at := 0; at+stateSize <= len(p.Body); at += stateSize {
		if slices.Contains(services, decodeState(p.Number, p.Body[at:]).Service) {
			dropped++
			continue
		}
		body = append(body, p.Body[at:at+stateSize]...)
	}
	return body, dropped
}

// RowPage returns the page of states in the entity's row, nil if it is unchanged.
func (e *Entity) RowPage() []byte {
	if pages := e.States.Changed(); len(pages) > 0 && pages[0].Number == 0 {
		return pages[0].Body
	}
	return nil
}

// SortWrites divides the writes of entities by statement, in the order in which rows
// are locked. An entity that is there twice is Fatal.
func SortWrites(entities []Entity) (w Write, err error) {
	sorted := make([]*Entity, len(entities))
	for i := range entities {
		sorted[i] = &entities[i]
	}
	slices.SortFunc(sorted, func(a, b *Entity) int { return cmp.Compare(a.ID, b.ID) })
	for i, e := range sorted {
		if i > 0 && sorted[i-1].ID == e.ID {
			return w, WithClass(errTwice, Fatal)
		}
		if e.Writes == 0 {
			w.Insert = append(w.Insert, e)
		} else {
			w.Update = append(w.Update, e)
		}
		for _, p := range e.States.Changed() {
			if p.Number > 0 {
				w.Pages = append(w.Pages, EntityPage{e.ID, p})
			}
		}
	}
	return w, nil
}

// PageKeys are pages outside the row of their entity.
type PageKeys struct {
	Entities []string
	Pages    []int32
	seen     map[Key]bool
}

// Add adds the page that has the state of k, unless it is there, or in the row.
func (p *PageKeys) Add(k Key) {
	page := Key{PageOf(k.Service), k.Entity}
	if page.Service == 0 || p.seen[page] {
		return
	}
	if p.seen == nil {
		p.seen = map[Key]bool{}
	}
	p.seen[page] = true
	p.Entities, p.Pages = append(p.Entities, page.Entity), append(p.Pages, page.Service)
}

// RowsOf returns the states that keys name, in their order.
func RowsOf(keys []Key, of map[string]*States) []Row {
	rows := make([]Row, len(keys))
	for i, k := range keys {
		rows[i] = of[k.Entity].Get(k.Service)
		rows[i].Entity = k.Entity
	}
	return rows
}

// Scan pages through the dam states of many entities for those that pick wants: read
// returns up to n entities after the given one, in ascending order of their ids, with
// their states. It ends when limit entities had a state that was picked.
func Scan(after string, limit int, pick func(Row) bool, read func(after string, n int) ([]Entity, error)) (rows []Row, err error) {
	for limit > 0 {
		entities, err := read(after, scanPage)
		if err != nil {
			return nil, err
		}
		for i := range entities {
			before := len(rows)
			for _, r := range entities[i].States.All(entities[i].ID) {
				if pick(r) {
					rows = append(rows, r)
				}
			}
			if len(rows) > before {
				if limit--; limit == 0 {
					return rows, nil
				}
			}
		}
		if len(entities) < scanPage {
			break
		}
		after = entities[len(entities)-1].ID
	}
	return rows, nil
}

// MovedIn returns the rows of a page of up to n entities whose version is from from up to,
// not including, to, and the last entity of the page: "" if no more follow.
func MovedIn(entities []Entity, n int, from, to change.Version) (rows []Row, last string) {
	for i := range entities {
		for _, r := range entities[i].States.All(entities[i].ID) {
			if r.Version >= from && r.Version < to {
				rows = append(rows, r)
			}
		}
	}
	if n > 0 && len(entities) == n {
		last = entities[n-1].ID
	}
	return rows, last
}

// scanPage is how many entities a scan reads at a time, so that a server is never
// silent for long.
const scanPage = 1000
