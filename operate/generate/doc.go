// Package generate makes a stream of realistic events and the configuration
// that goes with it: three sources, any number of entities, events and
// customers. The same seed gives the same bytes.
//
// The stream holds what real ones hold and what Weir is for: fields that
// change all the time and matter to nobody, members in another order at every
// event, events that are delivered again, producers that repeat an old event
// late, deletions and entities that come back.
package generate
