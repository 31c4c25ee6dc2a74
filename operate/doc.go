// Package operate is what operators do to a pipeline: decide again (replay,
// backfill), forget dam states (reset), and replay dead letters.
//
// # Model
//
// Nothing here writes a decision. Every action becomes records in the inbox,
// keyed by entity, which the owner of the entity decides in its order, from the
// current merged document (I10), so there is one writer per entity (I5) and
// nothing stale is sent. A control record that is there twice does no harm.
//
// A long action is a job: a row with a cursor, moved after the records up to it are acknowledged.
// After a kill the same action resumes there. At most the last portion is repeated. Memory is
// bounded by a portion.
//
// Every action has an audit row with who, why and how many, and the id of the
// operation; records that change a dam row have one of their own with that id.
//
// # Parts
//
//   - [Env] is what an action works with; commands, pages and tests make one.
//   - [Env.Run] does a [Task] on a selection of entities, or previews it.
//   - [Env.ReplayLetters], [DiscardLetters] and [EditLetter] are for dead letters.
//   - [Env.Wait] returns when everything that was asked for is decided.
package operate
