package merge

import (
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// SourceError says that something about the document of one source stopped the
// work. It holds nothing of the document's content.
type SourceError struct {
	Source string
	Err    error
}

// Error gives the source and the cause.
func (e *SourceError) Error() string { return fmt.Sprintf("source %q: %v", e.Source, e.Err) }

// Unwrap gives the cause: [ErrUnknownSource] or an error of canonicaltree.Parse.
func (e *SourceError) Unwrap() error { return e.Err }

// ErrUnknownSource is the cause when a Plan does not have the source.
var ErrUnknownSource = errors.New("not declared")

// Next gives a source's document after an event. stored is its text so far, nil
// if there is none; event is the event's value, absent on a delete. The result is
// nil after a delete. It may share memory with stored or with the event's
// document, so it is valid as long as they are.
//
// changed is false when the document is structurally what it was, numbers
// compared by their literal; doc is stored then. The error is a *[SourceError].
func (p *Plan) Next(source string, stored []byte, event canonicaltree.Node) (doc []byte, changed bool, err error) {
	mode, ok := p.modes[source]
	if !ok {
		return nil, false, &SourceError{source, ErrUnknownSource}
	}
	if !event.Exists() {
		return nil, stored != nil, nil
	}
	var before canonicaltree.Node
	if stored != nil {
		tree, err := canonicaltree.Parse(stored)
		if err != nil {
			return nil, false, &SourceError{source, err}
		}
		defer tree.Release()
		before = tree.Root()
	}
	switch mode {
	case Patch:
		if before.Exists() && !patches(before, event) {
			return stored, false, nil
		}
		return appendPatched(nil, before, event), true, nil
	default:
		if before.Exists() && canonicaltree.Equal(before, event, canonicaltree.Literal) {
			return stored, false, nil
		}
		return event.Raw(), true, nil
	}
}

// patches reports whether patch changes target, which exists.
func patches(target, patch canonicaltree.Node) bool {
	if patch.Kind() != canonicaltree.Object || target.Kind() != canonicaltree.Object {
		return patch.Kind() == canonicaltree.Object || !canonicaltree.Equal(target, patch, canonicaltree.Literal)
	}
	for name, v := range patch.Members() {
		was := target.Get(name)
		switch {
		case v.Kind() == canonicaltree.Null:
			if was.Exists() {
				return true
			}
		case !was.Exists() || patches(was, v):
			return true
		}
	}
	return false
}

// appendPatched appends the result of MergePatch of RFC 7396, section 2. target
// may be absent.
func appendPatched(dst []byte, target, patch canonicaltree.Node) []byte {
	if patch.Kind() != canonicaltree.Object {
		return append(dst, patch.Raw()...)
	}
	dst = append(dst, '{')
	start := len(dst)
	for name, v := range target.Members() {
		change := patch.Get(name)
		if change.Kind() == canonicaltree.Null {
			continue
		}
		dst = appendName(dst, start, name)
		if change.Exists() {
			dst = appendPatched(dst, v, change)
		} else {
			dst = append(dst, v.Raw()...)
		}
	}
	for name, v := range patch.Members() {
		if v.Kind() == canonicaltree.Null || target.Get(name).Exists() {
			continue
		}
		dst = appendName(dst, start, name)
		dst = appendPatched(dst, canonicaltree.Node{}, v)
	}
	return append(dst, '}')
}

// appendName appends the name of a member of the object that begins at start,
// with the comma before it.
func appendName(dst []byte, start int, name string) []byte {
	if len(dst) > start {
		dst = append(dst, ',')
	}
	return append(canonicaltree.AppendString(dst, name), ':')
}
