// Package api is the HTTP server of the API: the part that all routes share.
//
// A request passes, in this order: its route (404, 405), the state of the
// process (503), its token (401), the verb of the route (403), the token's rate
// (429), and then the handler, which asks for the right to the resource and
// reads the body. So a caller that shows no token costs a hash and no memory: its body
// is never read. Bodies are counted in bytes as they arrive, against a budget of
// the server and a share of it per tenant, so neither a tenant's large requests
// nor its slow ones keep others out.
//
// Errors are problem details (RFC 9457, package problem). Every answer has a
// Request-Id. Logs name no payload and no token; Options.AccessLog adds a line per
// request.
package api
