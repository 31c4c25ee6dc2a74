// Package webhook is a sink that sends each change to an HTTP endpoint.
//
// # Model
//
// One change is one POST. Its body is the change's record (see
// change.AppendRecord), the same bytes at every attempt. Its headers are
//
//	Content-Type: application/json
//	Idempotency-Key: KEY
//	webhook-id: KEY
//	webhook-timestamp: seconds since 1970, of this attempt
//	webhook-signature: v1,BASE64 [v1,BASE64 …]
//
// after the Standard Webhooks specification (github.com/standard-webhooks/standard-webhooks);
// every attempt is signed anew, by every configured secret, so that secrets can be rotated: add
// the new one, let the receiver change over, take the old one away. A change of a traced event has traceparent, and tracestate if there is one, after
// W3C trace context. They are not signed, and may differ between attempts.
//
// With Options.BatchMax one POST is an array of such records, of at most 1 MiB, signed as
// one. Its id, in the two headers, is made from their keys. An array has at most one
// change of each entity, and one array is in flight.
//
// Requests about different entities run side by side, up to a limit. An entity has one request in
// flight, and its changes go in order. After a failure that is not a refusal its later changes
// wait for the next Write.
//
// # Guarantee
//
// At least once, in order per entity. A change that deliver sees confirmed was
// answered with 2xx. The status line is the answer, except that of a 207 and of a
// body that has a status under the change's key.
//
// An attempt may be repeated, after a time-out or a crash for instance, and
// then has the same key, version and body. It is the receiver that makes the
// repetition a no-op (invariant I2): it stores the key or, per entity, the
// version, in the same transaction as the effect, and answers 2xx to a change
// that it has already. A receiver of kind state must also ignore a version that is not
// higher than the one it has (I5), retractions included. A receiver that looks
// at neither has the effect twice whenever an answer was lost, and may have an
// older document over a newer one when an operator's tools repeat something.
// Nothing on this side can prevent that.
//
// # Answers
//
// README.md has the table of statuses, statusFailure its code.
//
// The answer to an array holds for all of its changes, unless a 2xx lists one status for
// each, in order or by key. A 2xx whose body is neither such a list nor an acknowledgement
// pauses the service, as does one that is longer than this package reads. A refusal of a listed change is that change's own,
// also 401 or 404, unless every change has such a status. A 4xx of the array, or a server
// error, is split until the changes to blame are alone; 413 makes the next arrays smaller.
//
// A time-out, a broken connection, 408, 502 and 504 may be an outage, or one document that
// the receiver chokes on. Several of them without a success end a Write early.
//
// # Security
//
// Redirects are never followed: the signature and the headers belong to the
// configured URL. No error holds the URL, a header, a secret or a value of a document.
// Malformed answers are described in words of this package. Of an answer's body an error
// holds the reason alone, as one line of at most 200 bytes, without words of the request.
// Answers are read up to 64 KiB and thrown away.
//
// URLs are configured by the operator, so private and loopback addresses are
// allowed by default. Where customers may set URLs, DenyPrivate refuses such
// addresses after name resolution, for the address that is really connected
// to, so a name that changes its address is refused too.
//
// # Not promised
//
// Order between entities. Open sends nothing, since an endpoint cannot be
// probed without an effect: a wrong URL shows at the first change.
// net/http repeats a request by itself, with the same headers, when a kept
// connection turns out to be closed before any answer came.
package webhook
