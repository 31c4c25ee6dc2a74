// Package importhttp is the part of the API that loads files into sources, see
// package imports.
//
//	POST /v1/imports?source=S      a file: application/x-ndjson or text/csv
//	GET  /v1/imports               the tenant's imports, the latest first
//	GET  /v1/imports/{id}          one
//	GET  /v1/imports/{id}/errors   its rows that were not accepted, as a file
//	POST /v1/imports/{id}/cancel
//
// A file is answered when it is stored completely: 202 with the job, or 200 with
// the earlier job when the same file came before. The body may be of any size up
// to the configured limit and is never held in memory; it must keep coming.
//
// A caller sees the imports of its tenant, into the sources that its token may
// import into.
package importhttp
