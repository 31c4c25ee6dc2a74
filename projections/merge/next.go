package merge

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// ofSource names the source whose document stopped the work.
func ofSource(source string, err error) error { return fmt.Errorf("source %q: %w", source, err) }

// NextNode returns a source's document after an event. stored is the document so
// far, absent if there is none; event is the event's value, absent on a delete.
// The result is absent after a delete; else it is stored, event, or the root of a
// tree that was put together from both, does not refer to them, and is kept in trees.
//
// changed is false when the document is structurally unchanged, numbers
// compared by their literal; doc is stored then. The error names the source and holds
// nothing of its document: the plan does not have the source, or a limit of the new one.
func (p *Plan) NextNode(trees *canonicaltree.Batch, source string, stored, event canonicaltree.Node) (doc canonicaltree.Node, changed bool, err error) {
	s, ok := p.sources[source]
	switch {
	case !ok:
		return canonicaltree.Node{}, false, ofSource(source, errors.New("not declared"))
	case !event.Exists():
		return event, stored.Exists(), nil
	case !s.Patch:
		if stored.Exists() && canonicaltree.Equal(stored, event, canonicaltree.Literal) {
			return stored, false, nil
		}
		return event, true, nil
	case stored.Exists() && !patches(stored, event):
		return stored, false, nil
	}
	b := canonicaltree.NewBuilder(len(stored.Raw()) + len(event.Raw()))
	patch(b, stored, event)
	tree, err := b.Tree()
	if err != nil {
		return canonicaltree.Node{}, false, ofSource(source, err)
	}
	// One that is too large already may shrink.
	if size := len(tree.Root().Raw()); s.MaxBytes > 0 && size > s.MaxBytes && size > len(stored.Raw()) {
		tree.Release()
		return canonicaltree.Node{}, false, ofSource(source, fmt.Errorf("with this patch the document has %d bytes, the limit (max_event) is %d", size, s.MaxBytes))
	}
	return trees.Keep(tree).Root(), true, nil
}

// Fill returns an event whose members of the names in unchanged have the values of stored. The
// error names a member that stored lacks.
func (p *Plan) Fill(trees *canonicaltree.Batch, source string, stored, event canonicaltree.Node, unchanged []string) (canonicaltree.Node, error) {
	b := canonicaltree.NewBuilder(len(stored.Raw()) + len(event.Raw()))
	b.BeginObject()
	for v := range event.Children() {
		if name := string(v.Name()); slices.Contains(unchanged, name) {
			if v = stored.Get(name); !v.Exists() {
				return canonicaltree.Node{}, fmt.Errorf("column %.64q was left unchanged by the update, is not in the database's log, and the stored document "+
					"does not have it: ALTER TABLE … REPLICA IDENTITY FULL, or strip the column", name)
			}
		}
		b.Name(v.Name())
		b.Value(v)
	}
	b.End()
	tree, err := b.Tree()
	if err != nil {
		return canonicaltree.Node{}, ofSource(source, err)
	}
	if size, most := len(tree.Root().Raw()), p.sources[source].MaxBytes; most > 0 && size > most {
		tree.Release()
		return canonicaltree.Node{}, ofSource(source, fmt.Errorf("with its unchanged columns the document has %d bytes, the limit (max_event) is %d", size, most))
	}
	return trees.Keep(tree).Root(), nil
}

// patches reports whether patch changes target, which exists.
func patches(target, patch canonicaltree.Node) bool {
	if patch.Kind() != canonicaltree.Object || target.Kind() != canonicaltree.Object {
		return patch.Kind() == canonicaltree.Object || !canonicaltree.Equal(target, patch, canonicaltree.Literal)
	}
	for v := range patch.Children() {
		was := target.GetBytes(v.Name())
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

// patch adds the result of MergePatch of RFC 7396, section 2. target may be
// absent.
func patch(b *canonicaltree.Builder, target, with canonicaltree.Node) {
	if with.Kind() != canonicaltree.Object {
		b.Value(with)
		return
	}
	b.BeginObject()
	if target.Kind() == canonicaltree.Object {
		for v := range target.Children() {
			change := with.GetBytes(v.Name())
			if change.Kind() == canonicaltree.Null {
				continue
			}
			b.Name(v.Name())
			if change.Exists() {
				patch(b, v, change)
			} else {
				b.Value(v)
			}
		}
	}
	for v := range with.Children() {
		if v.Kind() == canonicaltree.Null || target.GetBytes(v.Name()).Exists() {
			continue
		}
		b.Name(v.Name())
		patch(b, canonicaltree.Node{}, v)
	}
	b.End()
}
