// Package canonicaltree knows JSON and nothing else: it parses a document
// strictly, orders its members, hashes it by structure, compares two documents
// and reports which paths differ.
//
// # Model
//
// [Parse] scans a document once and returns a [Tree]: a compact index over the
// document's own bytes. A [Node] is a position in a Tree, cheap to copy, and
// describes the value there. A Tree is immutable after Parse, so any number of
// goroutines may read it at the same time. It keeps the bytes that it was
// parsed from: the caller must not change them while the Tree is in use.
//
// # Putting together
//
// What strip rules, merges and projections make of documents is not written and
// parsed again. A [Builder] puts a Tree together from Nodes of any Trees: it copies
// their bytes and moves their part of the index along. An [Encoder] takes the
// digest of such a value without even that.
//
// # Goroutines
//
// Functions, Trees and Nodes may be used from any number of goroutines. A Builder or an Encoder
// belongs to one at a time. Working memory comes from pools: [Tree.Release] and [Encoder.Release]
// return it to the pool. Nothing derived from the released value may be used afterwards.
//
// # Equality
//
// Two documents are structurally equal when they hold the same values in the
// same places. The order of members, white space and the spelling of escapes
// do not matter; types, nesting, the order of arrays, and null against absent
// do. Numbers compare by their literal ([Literal]: 1 is not 1.0) or by their
// value ([Decimal]: 1, 1.0 and 1e0 are equal), never through float64.
//
// The digest ([Sum]) is SHA-256 over a type-tagged, length-prefixed encoding
// that no two different documents share; structural-hash.md specifies it.
// [Sum] takes it in one pass over the usual document, [Node.Sum] from the index.
// A digest is only comparable with one of the same [Scheme]; store the scheme's
// number beside it.
//
// # Refused documents
//
// Anything that is not exactly one JSON text by RFC 8259 in valid UTF-8 is
// refused with a [SyntaxError] that carries the offset. So are duplicate member
// names (RFC 7493, also when one of them is escaped), lone surrogates and a
// byte-order mark. Nesting deeper than the limit, and a document larger than
// it, is refused with a [LimitError]. Neither error quotes the document.
package canonicaltree
