package merge

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// JoinNodes appends the stored form of docs to dst: a JSON object from the names
// of sources, sorted, to their documents as they are written. Sources whose
// document is absent are left out; without any it is {}. The names must be valid
// UTF-8.
func JoinNodes(dst []byte, docs map[string]canonicaltree.Node) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for _, source := range slices.Sorted(maps.Keys(docs)) {
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

// SplitNodes is the reverse of JoinNodes: all documents are values of one tree,
// parsed at once. Nothing at all is read as no documents. packed must not change
// while they are in use. The error is one of canonicaltree.Parse, or says that it is no object.
func SplitNodes(packed []byte) (map[string]canonicaltree.Node, error) {
	docs := make(map[string]canonicaltree.Node)
	if len(packed) == 0 {
		return docs, nil
	}
	// Every document may be as deep as the limit, and is one deeper here.
	tree, err := canonicaltree.ParseLimits(packed, canonicaltree.Limits{Depth: canonicaltree.DefaultDepth + 1})
	if err != nil {
		return nil, fmt.Errorf("merge: stored documents: %w", err)
	}
	root := tree.Keep().Root()
	if root.Kind() != canonicaltree.Object {
		return nil, errors.New("merge: the stored documents are not a JSON object")
	}
	for doc := range root.Children() {
		docs[string(doc.Name())] = doc
	}
	return docs, nil
}
