// Package core decides what deliver does with changes. It has no goroutine, no lock and no
// clock: the caller passes events and the time, and applies the effects. There are two
// machines: [Flow] brings changes from the log to the queues of the services, [Service] brings
// those of one service to its sink. tests/protocol has models of their rules.
//
// # Flow
//
// A [Lane] is one service in one [Partition]:
//
//	     HandOut: the frame follows, there is room
//	behind ─────────────────────────────► dispatched ─ Take ─► in hand ─ Finish ─► position
//	  ▲  │ Look: the log has not what follows                │
//	  │  └──► passed, with a Repair                          │
//	  └────────────── Fall: the sink fails, the service ends ┘
//
// Next says for which position the log is to be read. A swap of the partition's row (Swap, Swapped)
// writes positions, repairs, refreshes, bookmarks, retrying rows and dead letters together.
//
// Two needs have entities decided again: a [Repair], of changes that were lost, and a refresh, of
// entities that are sent once a period in any case. One walk over all entities serves both
// (JoinWalk, Visited).
//
// # Service
//
// The states of an [Item]:
//
//	      Add          quiet            success, newer change
//	log ───────► Resting ────► Fresh ──────────────────────────► Settled
//	     Add, no pace ───────────▲ │                                ▲
//	                             │ │ answer against it, no room     │
//	      unreachable, or a write │ ├──────► Held ──────────────────┤
//	      that failed as a whole  └─┤         │ room                │
//	                                │ answer  ▼                     │
//	                                ├──────► Parked ────────────────┤
//	                                │         │  ▲ failure          │
//	                                │         │  └──────┘           │
//	                        refused ▼         ▼ old, full queue     │
//	                             Refused   GivenUp ── Concluded ────┘
//
// An answer against one change parks it at once: its row is written together with the position that
// passes it. Without room the change is Held: it keeps the position, Fresh ones go out beside it,
// then Held ones in turns with rows. A write that failed as a whole is halved. A failure before sending says
// nothing about a change. Of a log sink all changes behind a failed one of their entity wait.
//
// A row is given up when Config.For has passed since the first failure and another entity succeeded
// since its attempt before, or no other was tried, or when seven times as long has passed. Time alone
// would give up good changes in one long outage. Failures of two entities without a success in between
// brake the service: one change at a time, ever more seldom.
//
// A [Pace] holds first attempts back. A change in hand rests until its entity is quiet; resting
// changes keep the position as all in hand do, so a kill loses the timers and nothing else. Of the
// changes that a newer one replaces, the oldest keeps the position for all of them. The rate counts
// attempts of all kinds, and linger ends with a full write.
package core
