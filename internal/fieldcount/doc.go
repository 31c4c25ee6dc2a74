// Package fieldcount counts, per source, which fields suppressed events changed: events that
// changed something and led to no send.
//
// # Model
//
// A field is counted for each event that changed it, and once more among its saves if no
// projection reads any field that the event changed: then the event is noise once all of
// these are stripped. Counts are sums, so those of all processes add up.
//
// Paths are generalised: an index of an array becomes a star. A source keeps [MaxFields]
// fields. Beyond that the members of one object become a star, as those of an object that is
// used as a map are; if no object has many, the rarest field is counted as other.
//
// A sample of the events is counted where many come, with a weight, so that all numbers are
// estimates of the whole.
package fieldcount
