// Package crash ends the process at chosen boundaries, for tests.
//
// Every boundary that matters for the promises of the pipeline (an effect durable on one side is
// not yet durable on the other) has a name in points.go and one call in the code. Built with the
// tag "crash", a call counts its passings, and the passing that the environment names kills the
// process with SIGKILL. Without the tag every call is empty and vanishes when it is inlined: The
// product contains none of it.
//
// WEIR_CRASH=name:n or name@place:n dies at the n-th passing, counted from 1, of
// a point, or of the passings whose place (a service, a source, a consumer group)
// ends in the given one. WEIR_CRASH_LOG names a file to which every passing is
// appended as a line: name, place or "-"; and before death "killed" in front.
//
// Package tests/crash drives it.
package crash
