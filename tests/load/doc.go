// Package load checks the real binary against the needs of a busy API: large batches
// within the memory of its container, tenants beside a flooder, and idle connections. It is
// behind the build tag verify: `SUITE=load make verify`.
package load
