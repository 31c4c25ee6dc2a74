// Package sketch keeps, in bounded memory, which fields cause suppressed
// events: events that changed something and led to no send to anybody.
//
// # Model
//
// A sketch counts the sets of paths that events changed, since only together
// they caused it; a set of one path is a field that did so alone. There are more
// sets than memory, so a source's heavy hitters are kept by Space-Saving
// (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k
// elements in data streams", ICDT 2005): of at most [MaxSets] counters the
// smallest is taken over by a new set, which inherits its count as a possible
// error. A count minus its error is a lower bound. Sketches merge (Agarwal et
// al., "Mergeable summaries", PODS 2012), so every process keeps its own and all
// are added up.
//
// Paths are generalised: an index of an array becomes a star, and so do the
// members of an object of which more than [MaxChildren] names were seen, as
// those of an object that is used as a map are.
//
// Events are sampled where many come, and counted with a weight, so that all
// numbers are estimates of the whole.
package sketch
