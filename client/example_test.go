package client_test

import (
	"context"
	"fmt"

	"github.com/seed-86dfc502/weir/client"
)

// A caller projects and delivers itself. It asks before it sends, confirms what
// arrived, and returns what could not be sent.
func Example() {
	address, stop := serve() // a Weir with the check service acme/crm@check
	defer stop()

	ctx := context.Background()
	c, err := client.New(client.Options{URL: address, Token: "secret"})
	if err != nil {
		fmt.Println(err)
		return
	}
	crm := c.Service("acme/crm@check")
	send := func(document map[string]any, event string, deliver func(key string) error) {
		answer, err := crm.Check(ctx, client.Check{Entity: "banana-1", Payload: document, EventID: event})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event, answer.Decision, answer.Repeated)
		if answer.Decision != client.Pass {
			return
		}
		if err := deliver(answer.Key); err != nil {
			_, err = crm.Release(ctx, client.Failed{Entity: "banana-1", Version: answer.Version, Outcome: client.Unknown})
			fmt.Println("released", err)
			return
		}
		fmt.Println("confirmed", crm.Confirm(ctx, "banana-1", answer.Version))
	}
	arrives := func(string) error { return nil }
	send(map[string]any{"ripeness": 3}, "event-1", arrives)
	send(map[string]any{"ripeness": 3}, "event-2", arrives)
	send(map[string]any{"ripeness": 4}, "event-3", func(string) error { return context.DeadlineExceeded })
	send(map[string]any{"ripeness": 4}, "event-3", arrives)
	send(map[string]any{"ripeness": 3}, "event-2", arrives)
	// Output:
	// event-1 pass false
	// confirmed <nil>
	// event-2 duplicate false
	// event-3 pass false
	// released <nil>
	// event-3 pass false
	// confirmed <nil>
	// event-2 stale false
}
