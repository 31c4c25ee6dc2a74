// Package servers connects tests to the real servers they need.
//
// The servers are started by scripts/servers, once per checkout, and shared by every test. A test
// gets its own part of one of them: a schema in PostgreSQL, a database in ClickHouse, a prefix
// for topics or keys; it is removed when the test ends. So tests run in parallel and see nothing of
// one another.
//
// A test that stops or kills a server must not do that to the shared one: StartOwn starts a private
// instance.
//
// Every function skips the test under -short, and fails it when the server is not there. Where a
// server listens is read from the environment (WEIR_TEST_POSTGRES_URL and so on; scripts/servers env
// prints them) or, when the variable is not set, from .run/env, which scripts/servers writes.
//
// All functions may be called by concurrent tests.
package servers
