// Package golden tests a configuration: events in, expected sends and
// suppressions out.
//
// A case is a folder with two files. events.jsonl has one event per line:
//
//	{"source": "registry", "event": {…}, "key": "…", "headers": {"ce_id": "…"}}
//
// where event is the record of the source's producer, null for a tombstone or a deleted row, and
// key and headers are optional. Of a table of a PostgreSQL source event is the row; its key is
// the entity, which is taken from the row unless the line has it, as it must for a deleted row.
// expected.txt has a paragraph per event: its outcome, and the changes
// that were sent, held back or pruned:
//
//	1 registry B-007: merged
//	  send acme/ripeness@hook upsert {"banana_id":"B-007"}
//	  held back globex/list@archive
//	  pruned globex/prices@archive
//
// A change that the service's guard holds has "hold" for "send", and the reason at its end. The
// service stays held until the end of the case.
//
// The events are parsed, merged, projected and compared by the code that does so in production.
// Only store, log and sinks are maps.
package golden
