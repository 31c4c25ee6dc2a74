package merge

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// ErrNotObject says that a stored form is JSON, but not an object.
var ErrNotObject = errors.New("merge: the stored documents are not a JSON object")

// JoinDocs appends the stored form of docs to dst: a JSON object from the names
// of sources, sorted, to their documents as they are written. Sources whose
// document is nil are left out; without any it is {}. The documents must be JSON
// and the names valid UTF-8.
func JoinDocs(dst []byte, docs map[string][]byte) []byte {
	dst = append(dst, '{')
	start := len(dst)
	for _, source := range slices.Sorted(maps.Keys(docs)) {
		if doc := docs[source]; doc != nil {
			dst = appendName(dst, start, source)
			dst = append(dst, doc...)
		}
	}
	return append(dst, '}')
}

// SplitDocs is the reverse of JoinDocs. Nothing at all is read as no documents.
// The texts share memory with packed, which must not change while they are in
// use. The error is [ErrNotObject] or one of canonicaltree.Parse.
func SplitDocs(packed []byte) (map[string][]byte, error) {
	docs := make(map[string][]byte)
	if len(packed) == 0 {
		return docs, nil
	}
	tree, err := canonicaltree.Parse(packed)
	if err != nil {
		return nil, fmt.Errorf("merge: stored documents: %w", err)
	}
	defer tree.Release()
	root := tree.Root()
	if root.Kind() != canonicaltree.Object {
		return nil, ErrNotObject
	}
	for source, doc := range root.Members() {
		docs[source] = doc.Raw()
	}
	return docs, nil
}
