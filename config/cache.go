package config

import (
	"bytes"
	"maps"
	"reflect"

	"github.com/seed-86dfc502/weir/projections"
)

// Cache keeps customers' files between calls of Load: an unchanged file is neither parsed
// nor compiled again. A change of the main file empties it. The zero value is empty. One
// call at a time may use it, each with the same other options.
type Cache struct {
	main  *document
	files map[string]*cached
}

// cached is a customer's file that had no fault.
type cached struct {
	doc      *document
	content  CustomerFile              // as decoded: Load changes copies only
	compiled []*projections.Projection // of its projections; nil before they are checked
}

// Reuse reads unchanged customers' files from a cache, and updates it.
func Reuse(c *Cache) Option { return func(l *loader) { l.cache = c } }

// same reports whether the file has the text of an earlier reading.
func (d *document) same(earlier *document) bool { return bytes.Equal(d.data, earlier.data) }

// find returns the content of a file, nil for a changed one and without a cache. A reference with
// another value is a change, too.
func (c *Cache) find(doc *document, d *decoder) *cached {
	if c == nil {
		return nil
	}
	earlier := c.files[doc.file]
	if earlier == nil || !doc.same(earlier.doc) {
		return nil
	}
	for reference, value := range earlier.doc.references {
		if now, m := d.resolve(reference); m != nil || now != value {
			return nil
		}
	}
	reused := *earlier.doc
	reused.faults, reused.bad = doc.faults, map[string]bool{}
	return &cached{&reused, earlier.content, earlier.compiled}
}

// begin empties the cache after a change of the main file, on which the checks of
// customers' files depend.
func (c *Cache) begin(main *document) {
	if c != nil && (c.main == nil || !main.same(c.main) || !maps.Equal(main.references, c.main.references)) {
		c.main, c.files = main, nil
	}
}

// keep stores the files of a load without faults, and their compiled projections, in their order.
func (c *Cache) keep(read []*cached, compiled []*projections.Projection) {
	if c == nil {
		return
	}
	c.files = make(map[string]*cached, len(read))
	for _, f := range read {
		n := len(f.content.Projections)
		f.compiled, compiled = compiled[:n:n], compiled[n:]
		c.files[f.doc.file] = f
	}
}

// clone returns a deep copy of a decoded value. Values without exported fields are
// immutable and shared.
func clone(v reflect.Value) reflect.Value {
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		return v
	}
	made := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.Pointer:
		made.Set(reflect.New(v.Type().Elem()))
		made.Elem().Set(clone(v.Elem()))
	case reflect.Interface:
		made.Set(clone(v.Elem()))
	case reflect.Slice:
		made.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			made.Index(i).Set(clone(v.Index(i)))
		}
	case reflect.Map:
		made.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for key, value := range v.Seq2() {
			made.SetMapIndex(key, clone(value))
		}
	case reflect.Struct:
		made.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				made.Field(i).Set(clone(v.Field(i)))
			}
		}
	default:
		return v
	}
	return made
}
