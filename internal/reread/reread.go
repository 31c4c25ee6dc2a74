// Package reread keeps a value that is made from files and makes it again when they
// change, without a goroutine: its readers check the files, at most once per second. A
// file that became invalid changes nothing: the last good value stays.
package reread

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// every is how often files are checked. settle is how long after its last change a file may
// change again without a new modification time.
const (
	every  = time.Second
	settle = 2 * time.Second
)

// Value is a T made from files. Its methods may be called concurrently.
type Value[T any] struct {
	paths []string
	load  func() (T, error)
	tell  func(error)
	now   func() time.Time

	current atomic.Pointer[T]
	checked atomic.Int64 // when files were looked at, in nanoseconds of Unix time

	mu    sync.Mutex
	seen  []os.FileInfo // of paths at the last load; guarded by mu
	fresh bool          // they had just changed at the last load; guarded by mu
	said  string        // the failure reported last; guarded by mu
}

// Open loads the value. The error is load's. It calls tell after a later attempt with another
// result than the previous one: with an error, or with nil once the files are valid again or have
// changed. tell must not call Get. Symbolic links are followed.
func Open[T any](paths []string, load func() (T, error), tell func(error)) (*Value[T], error) {
	return open(paths, load, tell, time.Now)
}

func open[T any](paths []string, load func() (T, error), tell func(error), now func() time.Time) (*Value[T], error) {
	v := &Value[T]{paths: paths, load: load, tell: tell, now: now}
	v.checked.Store(now().UnixNano())
	v.seen, v.fresh, _ = v.look()
	value, err := load()
	if err != nil {
		return nil, err
	}
	v.current.Store(&value)
	return v, nil
}

// Get returns the value of the files, at most a second old, or of the last time that they
// were valid.
func (v *Value[T]) Get() T {
	last := v.checked.Load()
	if now := v.now().UnixNano(); (now-last >= int64(every) || now < last) && v.checked.CompareAndSwap(last, now) {
		v.refresh()
	}
	return *v.current.Load()
}

func (v *Value[T]) refresh() {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, fresh, err := v.look()
	if err == nil && !v.fresh && v.same(seen) {
		return
	}
	changed := err != nil || !v.same(seen)
	var value T
	if err == nil {
		value, err = v.load()
	}
	v.seen, v.fresh = seen, fresh
	if err != nil {
		if v.said != err.Error() {
			v.said = err.Error()
			v.tell(err)
		}
		return
	}
	v.current.Store(&value)
	if changed || v.said != "" {
		v.said = ""
		v.tell(nil)
	}
}

// look returns the identity of the files' content.
func (v *Value[T]) look() (seen []os.FileInfo, fresh bool, err error) {
	for _, path := range v.paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, false, err
		}
		seen = append(seen, info)
		fresh = fresh || v.now().Sub(info.ModTime()) < settle
	}
	return seen, fresh, nil
}

func (v *Value[T]) same(seen []os.FileInfo) bool {
	if len(seen) != len(v.seen) {
		return false
	}
	for i, a := range seen {
		b := v.seen[i]
		if !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}
