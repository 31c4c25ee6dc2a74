package linearizable

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/store/postgres"
)

// workerVariable holds the settings of a process; set, the test binary is one.
const workerVariable = "WEIR_LINEARIZABLE_PROCESS"

// connections of one process.
const connections = 20

func TestMain(m *testing.M) {
	if text := os.Getenv(workerVariable); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// work is a process of the test. Its log goes to its parent, every entry by one
// write before the announced call: so nothing that had an effect is missing
// when the process is killed.
func work(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	c, err := openClock(s.Clock)
	if err != nil {
		return err
	}
	ctx := context.Background()
	opened, err := postgres.Open(ctx, postgres.Options{URL: s.URL, MaxConns: connections})
	if err != nil {
		return err
	}
	used, err := breakStore(ctx, opened, s.URL, s.Defect)
	if err != nil {
		return err
	}
	defer used.Close()
	var mu sync.Mutex
	out := gob.NewEncoder(os.Stdout)
	p := &process{settings: s, store: used, now: c.now, gather: func() { c.gather(s.Together) }, log: func(e entry) {
		mu.Lock()
		defer mu.Unlock()
		if err := out.Encode(e); err != nil { // the parent is gone
			os.Exit(1)
		}
	}}
	return p.run(ctx)
}
