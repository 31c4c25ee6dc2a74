// Package chaos holds the tests that break things at random while Weir works.
//
// The world is everything that a production set-up has: two processes in one
// group (now and then three), Kafka, PostgreSQL for the state and another one
// as a target, Valkey, ClickHouse and a customer's endpoint. All servers are
// the test's own, so that killing them disturbs no other test. Weir reaches each of
// them through a proxy that can cut, delay, throttle or swallow.
//
// A plan is drawn from the seed before anything starts, and printed: which
// faults, on which target, at which step of the load and for how many steps.
// Steps are batches of events that Kafka has acknowledged, not seconds, so a
// plan means the same on a slow machine. A seed does not fix how the
// processes and servers interleave; a seed that failed once may have to be
// tried a few times.
//
// A round runs its plan under load, then stops the load, ends the faults
// and waits. Then every sink must hold the output of the independent model of tests/oracle:
// nothing lost, nothing twice, nothing out of order, nothing stale; there
// must be no dead letter; and every process must be ready again by itself. Only
// those that the plan killed or stopped have been started anew.
//
//	CHAOS_SEED=7 SUITE=chaos make verify
package chaos
