// Package merge keeps the last document of each source of an entity and makes
// one document of them.
//
// # Model
//
// An entity has at most one document per source. [Plan.NextNode] computes a source's
// new document from the stored one and an event: a source sends whole
// documents, or JSON merge patches (RFC 7396) if it says so, and a delete leaves none.
//
// [Plan.Layers] orders the documents by precedence, [Plan.Compose] merges them into one,
// and [Plan.Differences] returns where another document of a source changes the merged
// one. Every source has a place: the root, or the path that it is mounted at. Where
// several sources have an object, their members are merged, at every depth. Where they do
// not, the value of the source of highest precedence is taken whole: that source decides
// whether there is an object, an array or something else, and only objects are merged into
// its object. Null is a value like any other: it wins by precedence too, and an absent
// member never does. A document that is not an object is a value at its place under the
// same rule.
//
// Merging is deterministic and does not depend on the order of members in the
// documents. It does not strip, rename or convert anything: values are copied as
// they are written.
//
// The stored form of an entity's documents is one JSON object from the source's
// name to its document ([JoinNodes], [SplitNodes]). A document of a source that the
// plan does not know is left out of the merge and stays stored.
//
// All work is on parsed documents, and trees are put together. Nothing is parsed again on the way
// from the stored form to the merged document.
//
// Values of [Plan] are immutable: any number of goroutines may use one.
package merge
