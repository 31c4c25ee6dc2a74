package merge

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// JoinNodes appends the stored form of docs to dst: a JSON object from the names of sources,
// sorted, to their documents as they are written. Sources whose document is absent are left out.
// Without any it is {}. The names must be valid UTF-8.
func JoinNodes(dst []byte, docs map[string]canonicaltree.Node) []byte {
	size := len("{}")
	var room [8]string
	sources := room[:0]
	for source, doc := range docs {
		sources = append(sources, source)
		size += len(source) + len(doc.Raw()) + len(`"":,`)
	}
	dst = append(slices.Grow(dst, size), '{')
	start := len(dst)
	slices.Sort(sources)
	for _, source := range sources {
		if doc := docs[source].Raw(); doc != nil {
			if len(dst) > start {
				dst = append(dst, ',')
			}
			dst = append(canonicaltree.AppendString(dst, source), ':')
			dst = append(dst, doc...)
		}
	}
	return append(dst, '}')
}

// SplitNodes is the reverse of JoinNodes, see [Plan.Split].
func SplitNodes(packed []byte) (map[string]canonicaltree.Node, error) {
	docs := make(map[string]canonicaltree.Node)
	return docs, new(Plan).Split(nil, docs, packed)
}

// Split is the reverse of JoinNodes, into an empty map: all documents are values of one tree,
// which is kept in trees. Empty input means no documents. packed must not change while they are
// in use. The error is one of canonicaltree.Parse, or says that it is no object.
func (p *Plan) Split(trees *canonicaltree.Batch, docs map[string]canonicaltree.Node, packed []byte) error {
	if len(packed) == 0 {
		return nil
	}
	// Every document may be as deep as the limit, and is one deeper here.
	tree, err := canonicaltree.ParseLimits(packed, canonicaltree.Limits{Depth: canonicaltree.DefaultDepth + 1})
	if err != nil {
		return fmt.Errorf("merge: stored documents: %w", err)
	}
	root := trees.Keep(tree).Root()
	if root.Kind() != canonicaltree.Object {
		return errors.New("merge: the stored documents are not a JSON object")
	}
	for doc := range root.Children() {
		if s, ok := p.sources[string(doc.Name())]; ok {
			docs[s.Name] = doc
		} else {
			docs[string(doc.Name())] = doc
		}
	}
	return nil
}
