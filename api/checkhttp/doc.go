// Package checkhttp is the part of the API that answers check services: is this
// content to be sent, it was sent, it could not be sent. Package checks decides;
// this one reads requests strictly and writes answers. docs/check-api.md is for
// callers.
//
// A batch has one answer per row, in its order, and rows fail one by one: a row
// that is wrong, or that met a failure, has a problem instead of an answer, and
// the others are decided all the same.
//
// A request is decided even if its client hangs up, so one without an answer may
// have been decided. Asking again does no harm: see package checks.
package checkhttp
