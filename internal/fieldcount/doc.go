// Package fieldcount counts, per source, which fields suppressed events changed: events that
// changed something and led to no send.
//
// # Model
//
// A field is counted for each event that changed it, and once more among its saves if no
// projection reads any field that the event changed: then the event is noise once all of
// these are stripped. Counts are sums, so the counts of all processes add up.
//
// Paths are generalised: an index of an array becomes a star. A source keeps the first
// [MaxFields] fields. Those that come later are counted together.
//
// A sample of the events is counted where many come, with a weight, so that all numbers are
// estimates of the whole.
package fieldcount
