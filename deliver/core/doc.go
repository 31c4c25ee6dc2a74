// Package core decides what deliver does with changes. It has no goroutine, no lock and no
// clock: the caller passes events and the time, and applies the effects. There are two
// machines: [Flow] brings changes from the log to the queues of the services, [Service] brings
// those of one service to its sink. tests/protocol has models of their rules.
//
// # Flow
//
// A [Lane] is one service in one [Partition]:
//
//	   Tail: the frame follows
//	 ┌──────────────────────────► dispatched ─ Take ─► in hand ─ Finish ─► position
//	live ◄──────────────┐            ▲
//	 │                  │ Behind:    │ CatchUp: the frame follows
//	 │ a gap, LogEnded, │ caught up  │ Owed: the outbox has the frames
//	 │ Fall: no budget, │            │
//	 └──────────────► lagging ───────┤ Skip: the log has them elsewhere
//	                                 └ Lose: nothing has them: passed, with a Repair
//
// The tail never searches missing changes: it leaves the services that lack them to the
// catch-up reader and continues with the others. A swap of the partition's row (Swap, Swapped)
// writes positions, repairs, refreshes, bookmarks, retrying rows and dead letters together.
//
// Two needs have entities decided again: a [Repair], of changes that were lost, and a refresh, of
// entities that are sent once a period in any case. One walk over all entities serves both
// (JoinWalk, Visited).
//
// # Service
//
//	             Add                   success
//	log ─────────────────► in hand ──────────────► settled
//	                        │    ▲                   ▲
//	                failure │    │ second chance     │ success, newer change
//	                        ▼    │                   │
//	                       suspect ──────────────► retrying ◄─┐
//	                        │       evidence, alone,  │  │    │ claim, failure
//	                        │       backstop          │  └────┘
//	                refused │                         │ refused, last attempt
//	                        └──────► dead letter ◄────┘
//
// A suspect keeps the position. It becomes a retrying row, written together with the
// position that passes it, when a change of another entity succeeds in an attempt that
// began after the failure. Until then the target may be the one that fails. A suspect that is
// alone in hand becomes a row after Backstop attempts, or after each if the target answers: until
// then it keeps only its own position, and no other change waits for it.
//
// A [Pace] holds first attempts back. A change in hand rests until its entity is quiet; resting
// changes keep the position as all in hand do, so a kill loses the timers and nothing else. Of the
// changes that a newer one replaces, the oldest keeps the position for all of them. The rate counts
// attempts of all kinds, and linger ends with a full write.
package core
