package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/demo"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/spf13/cobra"
)

// demoTick is how often the demo writes events.
const demoTick = 100 * time.Millisecond

type demoOptions struct {
	*app
	stream demo.Options
	rate   int
	write  string
}

func newDemoCommand(a *app) *cobra.Command {
	o := &demoOptions{app: a, rate: 100}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run a made-up stream with the operators' page, until Ctrl-C",
		Long: "Run a made-up stream of events, embedded and in a temporary folder, with the operators' page. Ctrl-C ends it\n" +
			"and removes the folder. Other commands can be tried on it meanwhile, from another terminal.\n\n" +
			"With --write it writes --events events and the configuration into a new folder, and runs nothing. The same seed\n" +
			"makes the same bytes.",
		Example: "  weir demo\n  weir demo --rate 1000 --customers 24\n  weir demo --write stream --events 100000",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().IntVar(&o.rate, "rate", o.rate, "events per second")
	c.Flags().StringVar(&o.write, "write", "", "write a stream into this folder, which must be empty or missing")
	c.Flags().IntVar(&o.stream.Events, "events", 100_000, "events over all sources (--write)")
	c.Flags().Uint64Var(&o.stream.Seed, "seed", 1, "of the random numbers")
	c.Flags().IntVar(&o.stream.Entities, "entities", 1000, "entities")
	c.Flags().IntVar(&o.stream.Customers, "customers", 8, "customers, with one projection each")
	return c
}

func (o *demoOptions) run(ctx context.Context) error {
	if o.rate < 1 || o.stream.Entities < 1 || o.stream.Customers < 1 || o.stream.Events < 1 {
		return &usageError{errors.New("--rate, --entities, --customers and --events must be at least 1")}
	}
	if o.write == "" {
		return runDemo(ctx, o.app, o.stream, o.rate)
	}
	if entries, err := os.ReadDir(o.write); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", o.write)
	}
	if err := demo.Write(o.write, o.stream); err != nil {
		return err
	}
	_, err := fmt.Fprintf(o.out, "%s: %s events about %s entities from 3 sources, %d customers\n",
		o.write, humanize.Comma(int64(o.stream.Events)), humanize.Comma(int64(o.stream.Entities)), o.stream.Customers)
	return err
}

func runDemo(ctx context.Context, a *app, o demo.Options, rate int) (err error) {
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	o.Events = 1 // the first is sent again below, and is known then
	if err := demo.Write(dir, o); err != nil {
		return err
	}
	address, err := freeAddress(ctx, "127.0.0.1:9600")
	if err != nil {
		return err
	}
	a.config = filepath.Join(dir, "weir.yaml")
	text, err := os.ReadFile(a.config)
	if err != nil {
		return err
	}
	text = []byte(strings.Replace(string(text), `admin: {listen: "off"}`, `admin: {listen: "`+address+`"}`, 1))
	if err := os.WriteFile(a.config, text, 0o600); err != nil { // #nosec G703 -- a folder of its own
		return err
	}
	cfg, err := a.load()
	if err != nil {
		return err
	}
	page := ""
	if !isTerminal(a.err) { // there the run prints a link that signs in
		page = fmt.Sprintf("page:    http://%s/\n", address)
	}
	fmt.Fprintf(a.err, "%s a second about %s for %s\n%sask:     weir status -c %s\n         weir explain %s -c %s\nCtrl-C ends it and removes the folder.\n\n",
		english.Plural(rate, "event", "events"), entities(int64(o.Entities)), english.Plural(o.Customers, "customer", "customers"), page, a.config, demo.EntityID(0), a.config)

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wrote := make(chan error, 1)
	go func() {
		err := stream(ctx, dir, o, rate)
		if err != nil {
			stop()
		}
		wrote <- err
	}()
	err = runPipeline(ctx, a, cfg, pipeline.Options{Config: cfg, Roles: pipeline.AllRoles, Load: func() (*config.Config, error) { return assemble.Load(a.config, a.env) }})
	stop()
	return errors.Join(err, <-wrote)
}

// freeAddress returns an address without a listener: the wanted one if it is free.
func freeAddress(ctx context.Context, wanted string) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", wanted)
	if err != nil {
		if l, err = listen.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
	}
	return l.Addr().String(), l.Close()
}

// stream appends events to the files of the sources until ctx ends.
func stream(ctx context.Context, dir string, o demo.Options, rate int) (err error) {
	files := map[string]*bufio.Writer{}
	var open []io.Closer
	defer func() {
		for _, f := range open {
			err = errors.Join(err, f.Close())
		}
	}()
	perTick := max(1, rate*int(demoTick/time.Millisecond)/1000)
	tick := time.NewTicker(time.Duration(perTick) * time.Second / time.Duration(rate))
	defer tick.Stop()
	o.Events = math.MaxInt
	n := 0
	err = demo.Stream(o, func(source string, line []byte) error {
		w := files[source]
		if w == nil {
			f, err := os.OpenFile(filepath.Join(dir, source+".jsonl"), os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			w = bufio.NewWriter(f)
			open, files[source] = append(open, f), w
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
		if n++; n%perTick != 0 {
			return nil
		}
		for _, w := range files {
			if err := w.Flush(); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
