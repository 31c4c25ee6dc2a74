// Package checks decides for callers that do their own projection and delivery.
//
// # Model
//
// A check service has one row per entity, a dam row that no inbox feeds. Its caller asks before
// it sends ([Checker.Check]): does this content differ from the last one? Pass says yes, with a
// version and an idempotency key. The caller sends and then confirms the version
// ([Checker.Confirm]), or returns it when the sending failed for good ([Checker.Release]). Until
// it is confirmed the same content passes again, with the same version and key: a caller that
// died in between gets the change once more, as does any other, and its receiver tells by the key
// that it is the same one.
//
// A,B,A,B are four passes; A,A,A,B, each confirmed, two. An older content never
// passes after a newer one: a row remembers the highest sequence, and the last
// 16 events by id and content.
//
// # Versions
//
// The version of a pass is one more than the row's last, or the clock in
// microseconds when that is more. It grows strictly per entity with any
// clock. The clock is in it for a store that is restored from a backup,
// which has forgotten the versions that it gave out since:
// docs/decisions.md.
//
// # Deciding
//
// [Decide], [Confirm], [Release] and [Reset] are pure: row in, row and answer out. A
// [Checker] reads rows, decides, and swaps those that changed by their revision,
// as [store.CheckRows] says: the swap is the moment of the decision, and
// decisions of any number of processes are linearizable per entity. No row is
// kept between two transactions. Requests that arrive while a transaction is
// under way share the next one.
//
// # Guarantee
//
// At least once, and told: an answer follows the durable write. An
// error of class [store.Unknown], or a context that ended, leaves it open
// whether the request was decided; asking again with the same event id is safe.
package checks
