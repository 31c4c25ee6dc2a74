// Command kafkaready exits 0 when the Kafka broker at the address in its only argument answers a
// metadata request and names a controller, and 1 otherwise. It asks once; scripts/servers repeats.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kafkaready HOST:PORT")
		os.Exit(2)
	}
	if err := ask(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "kafkaready:", err)
		os.Exit(1)
	}
}

func ask(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	metadata, err := kadm.NewClient(client).BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if metadata.Controller < 0 || len(metadata.Brokers) == 0 {
		return errors.New("the broker knows no controller yet")
	}
	return nil
}
