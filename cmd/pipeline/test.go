package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/golden"
	"github.com/spf13/cobra"
)

type testOptions struct {
	*app
	dir, match, report string
	update, letters    bool
	coverage           bool
}

func newTestCommand(a *app) *cobra.Command {
	o := &testOptions{app: a}
	c := &cobra.Command{
		Use:   "test",
		Short: "Run golden tests of the configuration: events in, expected sends and suppressions out",
		Long: "Run the cases below a folder, by default tests beside the main configuration file. A case is a folder with\n" +
			golden.EventsFile + ", one {\"source\": …, \"event\": …} per line, and " + golden.ExpectedFile + ", which --update writes.\n" +
			"A line may have a \"key\" and \"headers\". \"event\": null is a tombstone, or with a \"key\" a deleted row of a database.",
		Example: "  weir test -c weir.yaml\n  weir test -c weir.yaml --update --run retraction\n  weir test -c weir.yaml --junit report.xml\n  weir test -c weir.yaml --coverage",
		RunE:    func(_ *cobra.Command, _ []string) error { return o.run() },
	}
	c.Flags().StringVar(&o.dir, "dir", "", "folder of the cases (default: tests beside the configuration file)")
	c.Flags().StringVar(&o.match, "run", "", "only cases whose name matches this regular expression")
	c.Flags().StringVar(&o.report, "junit", "", "write a JUnit XML report to this file as well")
	c.Flags().BoolVar(&o.update, "update", false, "write what came out as the expectation")
	c.Flags().BoolVar(&o.letters, "letters", false, "with --update: also where an event ends as a dead letter that was not expected")
	c.Flags().BoolVar(&o.coverage, "coverage", false, "name the fields, filters, sends, hold-backs, refusals and guards that no case reaches")
	return o.needConfig(c)
}

func (o *testOptions) run() error {
	if o.letters && !o.update {
		return &usageError{errors.New("--letters goes with --update")}
	}
	cfg, err := o.load(config.AllowUnsetEnv())
	if err != nil {
		return err
	}
	if o.dir == "" {
		o.dir = filepath.Join(filepath.Dir(cfg.File), "tests")
	}
	var pattern *regexp.Regexp
	if o.match != "" {
		if pattern, err = regexp.Compile(o.match); err != nil {
			return &usageError{fmt.Errorf("--run: %w", err)}
		}
	}
	var reached *golden.Coverage
	if o.coverage {
		reached = new(golden.Coverage)
	}
	results, err := golden.Run(cfg, o.dir, golden.Options{Pattern: pattern, Update: o.update, Letters: o.letters, Reached: reached})
	if err != nil {
		return err
	}
	failed := 0
	for _, r := range results {
		if r.Failed() {
			failed++
		}
		switch {
		case o.json:
		case r.Error != "":
			fmt.Fprintf(o.out, "FAIL %s: %s\n", r.Name, r.Error)
		case r.Diff != "":
			fmt.Fprintf(o.out, "FAIL %s\n%s\n", r.Name, r.Diff)
		case r.Updated:
			fmt.Fprintf(o.out, "updated %s\n", r.Name)
		default:
			fmt.Fprintf(o.out, "ok   %s\n", r.Name)
		}
	}
	if err := o.finish(results, reached); err != nil {
		return err
	}
	if o.report != "" {
		if err := writeReport(o.report, cfg.File, results); err != nil {
			return err
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d cases are not as expected", failed, len(results))
	}
	return nil
}

// finish prints the coverage of all cases.
func (o *testOptions) finish(results []golden.Result, reached *golden.Coverage) error {
	switch {
	case reached == nil && o.json:
		return o.printJSON(results)
	case reached == nil:
		return nil
	}
	missing, all := reached.Unreached()
	if o.json {
		return o.printJSON(struct {
			Cases     []golden.Result `json:"cases"`
			Reached   int             `json:"reached"`
			Of        int             `json:"of"`
			Unreached []string        `json:"unreached"`
		}{results, all - len(missing), all, missing})
	}
	for _, m := range missing {
		fmt.Fprintln(o.out, m)
	}
	fmt.Fprintf(o.out, "coverage: %d of %d\n", all-len(missing), all)
	return nil
}

// writeReport writes the report whole or fails.
func writeReport(path, suite string, results []golden.Result) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(golden.WriteJUnit(f, suite, results), f.Close())
}
