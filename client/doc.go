// Package client asks check services of Weir over HTTP: is this document to be
// sent, it was sent, it could not be sent.
//
// # Use
//
//	c, err := client.New(client.Options{URL: "https://weir.example:9601", Token: token})
//	crm := c.Service("acme/crm@check")
//	d, err := crm.Check(ctx, client.Check{Entity: "banana-1", Payload: document, EventID: id})
//	if d.Decision == client.Pass {
//		// send the document under d.Key, then:
//		err = crm.Confirm(ctx, "banana-1", d.Version)
//	}
//
// # Guarantee
//
// A call is repeated, as it is, when the answer was 429 or 503 or did not
// arrive, until it succeeds, its attempts are used up or its context ends. An
// answer that was lost on its way may have been a pass: the repetition gets the
// same version and key again, and so does any request for the same content
// later, until it is confirmed. Give every event its EventID (or a Sequence): it
// is what keeps a late repetition from passing after something newer.
//
// Nothing is logged, and no error holds the token.
package client
