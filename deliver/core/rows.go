package core

import (
	"cmp"
	"slices"
	"time"
)

// rows are the parked changes of a service, by entity: the first of each is tried first.
type rows struct {
	most      int
	mostBytes int64
	of        map[string][]*Item
	count     int
	bytes     int64
}

// room reports whether there is room for the row of an item.
func (r *rows) room(i *Item) bool { return r.count < r.most && r.bytes+i.Bytes <= r.mostBytes }

func (r *rows) full() bool { return r.count >= r.most || r.bytes >= r.mostBytes }

func (r *rows) add(i *Item) {
	r.of[i.Entity] = append(r.of[i.Entity], i)
	r.count++
	r.bytes += i.Bytes
}

func (r *rows) drop(i *Item) {
	queue := slices.DeleteFunc(r.of[i.Entity], func(o *Item) bool { return o == i })
	if r.of[i.Entity] = queue; len(queue) == 0 {
		delete(r.of, i.Entity)
	}
	r.count--
	r.bytes -= i.Bytes
}

// due returns rows to try, of different entities, and when the first is due.
func (r *rows) due(now time.Time, most int) (due []*Item, next time.Time) {
	for _, queue := range r.of {
		i := queue[0]
		next = earliest(next, i.Next)
		if !i.Next.After(now) {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b *Item) int { return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.Entity, b.Entity)) })
	if r.count > 0 && next.IsZero() {
		next = now
	}
	return due[:min(len(due), most)], next
}

// hurry makes the first row of each entity due at a time at the latest, spread over a while from there.
func (r *rows) hurry(now time.Time, over time.Duration) {
	for entity, queue := range r.of {
		if at := now.Add(time.Duration(float64(over) * spread(entity, 0))); queue[0].Next.After(at) {
			queue[0].Next = at
		}
	}
}

// concluding returns the rows that wait for Concluded.
func (r *rows) concluding() (out []*Item) {
	for _, queue := range r.of {
		for _, i := range queue {
			if !i.concluding() {
				break
			}
			out = append(out, i)
		}
	}
	return out
}
