// Package importhttp is the part of the API that imports files into sources, see
// package imports.
//
//	POST /v1/imports?source=S&file=ID   a file: application/x-ndjson or text/csv
//	GET  /v1/imports                    the tenant's imports, the latest first
//	GET  /v1/imports/{id}               one
//	GET  /v1/imports/{id}/errors        its rows that were not accepted, as a file
//	POST /v1/imports/{id}/cancel
//
// The body streams through: 200 with the job when all of its rows have their results. After
// 503, or a broken connection, the client posts the same file again. The body may be of any
// size up to the configured limit and must keep coming.
//
// A caller sees the imports of its tenant, into the sources that its token may
// import into.
package importhttp
