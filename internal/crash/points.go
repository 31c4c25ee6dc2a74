package crash

import "slices"

// Points, in the order of the flow. The place of a point, where it has one, is
// given in brackets.
const (
	Migrating   = "store.migrating"    // the migration lock is held, nothing is migrated
	MigrateHalf = "store.migrate-half" // inside the transaction of a migration (PostgreSQL)
	Migrated    = "store.migrated"     // migrated, the lock still held

	Fetched        = "transport.fetched"      // a fetch brought records, nobody has seen them [group]
	IngestBatch    = "ingest.batch"           // events parsed, before the gate's answer [source]
	GateChecked    = "ingest.gate-checked"    // after the gate's answer, before the append [source]
	AppendHalf     = "ingest.append-half"     // half of the events are in the inbox [source]
	Appended       = "ingest.appended"        // in the inbox, before the gate's marks [source]
	Marked         = "ingest.marked"          // marked, before the source is acknowledged [source]
	Acknowledged   = "transport.acknowledged" // after an acknowledgement, before its offset is committed [group]
	Committing     = "transport.committing"   // before the commit of offsets [group]
	Committed      = "transport.committed"    // after the commit of offsets [group]
	PositionSaving = "sources.file-saving"    // before a file's position is stored [source]
	PositionSaved  = "sources.file-saved"     // after it [source]

	DecideBatch     = "decide.batch"         // records collected, before the transaction
	DecideBegun     = "decide.begun"         // in the transaction: watermark moved, entities loaded
	DecideOutcome   = "decide.outcome"       // in the transaction: outcome known, nothing of it written
	DecideWritten   = "store.decide-written" // SQLite: written, not committed; PostgreSQL: writes and commit sent
	DecideControl   = "decide.control"       // in the transaction: a control record is being applied
	DecideCommitted = "decide.committed"     // committed, before its frames are handed over
	TakenOver       = "decide.taken-over"    // takeover: token written, nothing is read yet

	DeliverBatch  = "deliver.batch"          // changes dequeued, before the dam rows are read [service]
	GuardCounted  = "deliver.guard-counted"  // the guard has counted changes, none is written [service]
	Writing       = "deliver.writing"        // before the sink is called [service]
	WriteHalf     = "deliver.write-half"     // half of a batch took effect [service]
	WriteFlying   = "deliver.write-flying"   // the sink's call is under way [service]
	Written       = "deliver.written"        // after the sink's effect [service]
	Refusing      = "deliver.refusing"       // a change was refused, before that is appended to the inbox [service]
	Refused       = "deliver.refused"        // refusal in the inbox, before the dead letter is stored [service]
	Buried        = "deliver.buried"         // the dead letter is stored [service]
	Saving        = "deliver.saving"         // before the transaction that swaps the progress of partitions
	Saved         = "deliver.saved"          // after it
	ProgressTaken = "deliver.progress-taken" // partitions are taken over, before anything of them is read

	// Points of posted events.
	FrontBegun     = "api.begun"     // keys are claimed, nothing is appended [source]
	FrontAppended  = "api.appended"  // in the inbox, the claims have no answer yet [source]
	FrontCompleted = "api.completed" // answers are stored, none is sent [source]

	// Points of operators' commands.
	JobOpened       = "operate.job-opened"       // a job's row is there, nothing is appended [kind]
	JobAppending    = "operate.job-appending"    // before control records are appended [kind]
	JobAppended     = "operate.job-appended"     // in the inbox, the cursor is still before them [kind]
	JobSaved        = "operate.job-saved"        // the cursor is behind them [kind]
	JobEnded        = "operate.job-ended"        // the last audit row is there, the job is still open [kind]
	ChecksReset     = "operate.checks-reset"     // rows of a check service are reset, the cursor is still before them [kind]
	LettersReplay   = "operate.letters-replay"   // letters read, before their records are appended
	LettersReplayed = "operate.letters-replayed" // in the inbox, the dead letters are still open
)

// Points of a hold of the guard. The place is the service.
const (
	GuardHeld  = "deliver.guard-held"  // the hold is stored, the process has not paused the service
	HoldEnding = "operate.hold-ending" // before a command ends the hold
	HoldEnded  = "operate.hold-ended"  // after it, the command has not answered
)

// GuardPoints returns the points of a hold, in their order.
func GuardPoints() []string { return []string{GuardHeld, HoldEnding, HoldEnded} }

// ForgetPoints returns the points of the job that deletes the state of a removed customer.
func ForgetPoints() []string {
	return []string{JobOpened, JobAppending, JobAppended, JobSaved, JobEnded}
}

// Points of imports. The place is the source.
const (
	ImportBegun      = "imports.begun"       // the import is in the store, no row is ingested
	ImportAppendHalf = "imports.append-half" // half of its rows are in the inbox
	ImportTaken      = "imports.taken"       // the claims have their answers, the position is not written
	ImportStepped    = "imports.stepped"     // refused rows and position are written
)

// ImportPoints returns the points that only imports pass, in their order. Imports pass FrontBegun
// and FrontAppended, too.
func ImportPoints() []string {
	return []string{ImportBegun, ImportAppendHalf, ImportTaken, ImportStepped}
}

// Points of an outbox table. The place is the source.
const (
	OutboxLocked    = "sources.outbox-locked"    // rows are locked, none is handed out
	OutboxSettling  = "sources.outbox-settling"  // all are in the inbox, none is deleted or marked
	OutboxSettled   = "sources.outbox-settled"   // deleted or marked, not committed
	OutboxCommitted = "sources.outbox-committed" // after the commit
)

// OutboxPoints returns the points of an outbox table, in their order.
func OutboxPoints() []string {
	return []string{OutboxLocked, OutboxSettling, OutboxSettled, OutboxCommitted}
}

// Points of a PostgreSQL source. The place is the source of the slot, or of a table.
const (
	SlotMade        = "sources.slot-made"        // publication and slot exist, no position is stored [slot]
	EpochStored     = "sources.epoch-stored"     // position is stored, no row is read [slot]
	RowsExported    = "sources.rows-exported"    // the readers have the snapshot, no row is read [slot]
	RowsAppended    = "sources.rows-appended"    // rows are in the inbox, their key is not stored [table]
	RowsStored      = "sources.rows-stored"      // their key is stored [table]
	RowsDone        = "sources.rows-done"        // all ranges of a table are stored, its end is not [table]
	HandedOver      = "sources.handed-over"      // all rows are stored, changes alone are read [slot]
	ChangesAppended = "sources.changes-appended" // changes are in the inbox, their position is not stored [slot]
	ChangesStored   = "sources.changes-stored"   // position is stored, not confirmed [slot]
	SlotConfirmed   = "sources.slot-confirmed"   // position is confirmed to the server [slot]
)

// SlotPoints returns the points of a PostgreSQL source, in their order.
func SlotPoints() []string {
	return []string{SlotMade, EpochStored, RowsExported, RowsAppended, RowsStored, RowsDone, HandedOver, ChangesAppended, ChangesStored, SlotConfirmed}
}

// OperatorPoints returns the points of operators' commands except [CheckPoints].
func OperatorPoints() []string {
	return []string{JobOpened, JobAppending, JobAppended, JobSaved, JobEnded, LettersReplay, LettersReplayed}
}

// CheckPoints returns the points of the reset of check services.
func CheckPoints() []string { return []string{ChecksReset} }

// FrontPoints returns the points of posted events.
func FrontPoints() []string { return []string{FrontBegun, FrontAppended, FrontCompleted} }

// All returns every point, in the order of the crash matrix.
func All() []string {
	return slices.Concat(Points(), FrontPoints(), ImportPoints(), OutboxPoints(), SlotPoints(), OperatorPoints(), GuardPoints(), CheckPoints())
}

// Points returns all of them that the flow passes, in its order.
func Points() []string {
	return []string{
		Migrating, MigrateHalf, Migrated,
		Fetched, IngestBatch, GateChecked, AppendHalf, Appended, Marked, Acknowledged, Committing, Committed, PositionSaving, PositionSaved,
		DecideBatch, DecideBegun, DecideOutcome, DecideWritten, DecideControl, DecideCommitted, TakenOver,
		DeliverBatch, GuardCounted, Writing, WriteHalf, WriteFlying, Written, Refusing, Refused, Buried, Saving, Saved, ProgressTaken,
	}
}
