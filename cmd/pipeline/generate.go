package main

import (
	"fmt"
	"os"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/operate/generate"
	"github.com/spf13/cobra"
)

func (a *app) generateCommand() *cobra.Command {
	var o generate.Options
	var force bool
	c := &cobra.Command{
		Use:   "generate DIR",
		Short: "Make a stream of realistic events with a configuration that goes with it",
		Long: "Make a folder with events of three sources and the configuration of as many customers as asked for.\n" +
			"The same seed makes the same bytes.",
		Example: "  weir generate demo\n  weir run -c demo/weir.yaml --until-idle",
		RunE: func(_ *cobra.Command, args []string) error {
			if o.Entities < 1 || o.Events < 1 || o.Customers < 1 {
				return &usageError{fmt.Errorf("--entities, --events and --customers must be at least 1")}
			}
			if entries, err := os.ReadDir(args[0]); err == nil && len(entries) > 0 && !force {
				return fmt.Errorf("%s is not empty; --force writes over what is there", args[0])
			}
			var stop func()
			o.Progress, stop = a.progressOf()
			err := generate.Write(args[0], o)
			stop()
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"dir": args[0], "seed": o.Seed, "entities": o.Entities, "events": o.Events, "customers": o.Customers})
			}
			fmt.Fprintf(a.out, "%s: %s events about %s entities from 3 sources, %d customers\n",
				args[0], humanize.Comma(int64(o.Events)), humanize.Comma(int64(o.Entities)), o.Customers)
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also into a folder that is not empty: files of the same names are replaced")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "of the random numbers")
	c.Flags().IntVar(&o.Entities, "entities", 10_000, "entities")
	c.Flags().IntVar(&o.Events, "events", 100_000, "events over all sources")
	c.Flags().IntVar(&o.Customers, "customers", 24, "customers, with one projection each")
	return c
}
