// Package projections turns the merged document of an entity into what one
// customer may see of it, and knows which changes cannot be seen there.
//
// # Model
//
// A [Projection] is compiled once from a [Spec]: a filter and a list of fields.
// [Projection.Project] is a pure function of the document: if the filter matches,
// it returns a JSON object with the fields in the order of the configuration.
//
// [Projection.Sum] returns the digest of that object without writing it. A [Document] is a
// merged document that was not put together: its projections read the source documents by
// precedence, each path once for all of them.
//
// A field copies the value that its path selects. Paths are gjson's. Those of
// names, indexes and # alone are read from the document's tree; from the first
// wildcard, query, modifier or pipe on, gjson evaluates the rest on the canonical
// text of the value reached so far. Canonical, because wildcards and modifiers
// depend on the order of members, and two equal documents must have one output.
//
// The filter is an expression of github.com/expr-lang/expr on one name, doc. It
// is total in what documents lack: an absent member is null, wherever it is, and
// null has a defined meaning in every operator and function. It is closed: no
// time, no chance, no I/O, and a function only if its result depends on its
// arguments alone. None is the library's own: results are exact, or an error. The run-time errors
// are an operation on a type it does not support, such as "a" < 1, and a result that 64 bits do
// not hold: a [FilterError].
//
// # Pruning
//
// [Projection.ReadSet] lists the paths that a projection can see: for each field
// and each use of doc in the filter the part of its path that is fixed. If two
// documents agree at and below all of them, the output and the match are the
// same. [Index] is the reverse: from a changed path to the projections that it
// can affect. docs/projections.md says what this relies on.
package projections
