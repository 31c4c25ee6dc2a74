// Package shared holds the methods of the store off the path of decisions and deliveries:
// dead letters, audit, jobs, reports, revisions, inboxes, rows of check services,
// positions of sources. Both databases run the same statements, from the .sql files
// of this package; each implements DB, which binds and runs them.
//
// A statement begins with "-- name:" and becomes the function sqlName, which returns its Call:
// "go generate" writes them to statements.go. ":name" is a parameter, ":name.Field" a field or a
// method of one, and "IN {name}" compares with a list. "-- parameters:" at the top of the file has
// their types; the functions take them in this order. A tenant, or a field Tenant, is also that of
// the call. "{session}" is the session of the database, "{empty}" no bytes. "custom plan" behind
// the name has PostgreSQL plan the statement for its parameters: the index that serves depends on
// them. "lock timeout" has it fail with Retry where a row stays locked.
package shared
