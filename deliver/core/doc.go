// Package core decides what deliver does with the changes of one service. It has no
// goroutine, no lock and no clock: the caller passes events and the time, and applies the
// effects. tests/protocol/parking.pml and parking_target.pml check its rules.
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
// began after the failure. Until then the target may be the one that fails.
package core
