// Package noise reports which fields cause suppressed events, and the strip rules that make
// such events noise.
//
// # Model
//
// Deciding processes count the fields that suppressed events changed (package fieldcount). This
// package compares the counts with the configuration. It offers a rule for a path only if no
// projection can read there, in a field or in a filter, at the mount of the source: stripping
// it changes no customer's projection. Neither the outcome of a filter nor the precedence of
// sources matters.
//
// A rule applies to later documents. As a change of the configuration it makes each entity be
// evaluated once more, at its next event or by a backfill, which sends nothing by itself.
package noise
