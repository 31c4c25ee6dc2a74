// Package shared holds the methods of the store off the path of decisions and deliveries:
// dead letters, audit, jobs, imports, reports, revisions, inboxes, rows of check services,
// positions of sources. Both databases run the same statements, from the .sql files
// of this package; each implements DB, which binds and runs them.
//
// A statement begins with "-- name:". ":name" is a parameter; "IN {name}" compares with a
// list. "custom plan" behind the name has PostgreSQL plan it for its parameters: the index
// that serves depends on them. "lock timeout" has it fail with Retry where a row stays locked.
package shared
