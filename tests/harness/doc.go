// Package harness runs the real binary for tests: projects (a configuration in
// a folder), processes of it, receivers of webhooks, whole clusters on real
// servers, and the way from an inbox to the events of tests/oracle.
//
// A package that uses it calls Main from its TestMain. Everything here fails
// the test that it was given when something is not as it must be; nothing is for
// concurrent use unless it says so.
package harness
