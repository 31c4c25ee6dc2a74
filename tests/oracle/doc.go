// Package oracle says what Weir must deliver, by other means than Weir itself.
//
// It shares no code with the product: documents are decoded by encoding/json,
// kept in maps and worked on one event after the other, without a store, a
// hash, a batch or a cache. Given the events in the order of the inbox and a
// small description of the configuration, [Run] returns every change that every
// service must see, with its version; the Check functions hold what sinks
// received against that.
//
// It covers replace and patch sources, strip, merge with precedence and mount,
// required sources, projections with renaming, nesting, constants, defaults, computed and
// carried fields and rules of sameness, filters, retractions, the fence, the comparison with the last-seen
// document of each service, and the pace of a service.
package oracle
