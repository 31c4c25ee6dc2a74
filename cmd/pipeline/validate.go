package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/config"
	"github.com/spf13/cobra"
)

func newValidateCommand(a *app) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:   "validate",
		Short: "Check configuration, projections and the file of tokens, all faults at once",
		Long: "Check configuration, projections and the file that api.tokens names: every fault with file, line, column, the value and\n" +
			"what would be right. Needs no network, and no secrets: references to variables that are not set are accepted, and a\n" +
			"missing file of tokens. weir doctor checks the rest.",
		Example: "  weir validate -c weir.yaml",
		RunE:    func(_ *cobra.Command, _ []string) error { return validate(a) },
	})
}

func validate(a *app) error {
	cfg, err := a.load(config.AllowUnsetEnv())
	if err != nil {
		return err
	}
	// The file of tokens may be where Weir runs alone, as a secret.
	if file := cfg.API.Tokens; file != "" {
		_, missing := os.Stat(file)
		if _, err := config.LoadTokens(file, cfg.Sources.Names()); err != nil && !errors.Is(missing, fs.ErrNotExist) {
			return a.configError(err, file)
		}
	}
	for _, warning := range cfg.Warnings() {
		fmt.Fprintln(a.err, "warning:", warning)
	}
	for _, note := range cfg.Notes() {
		fmt.Fprintln(a.err, "note:", note)
	}
	services := cfg.Services()
	if a.json {
		checks := make([]string, len(cfg.Checks))
		for i := range cfg.Checks {
			checks[i] = cfg.Checks[i].Service()
		}
		return a.printJSON(map[string]any{"file": cfg.File, "sources": len(cfg.Sources), "customers": len(cfg.Customers), "projections": len(cfg.Projections), "services": serviceNames(cfg), "checks": checks})
	}
	fmt.Fprintf(a.out, "%s is fine: %s, %s, %s, %s", cfg.File, english.Plural(len(cfg.Sources), "source", "sources"), english.Plural(len(cfg.Customers), "customer", "customers"),
		english.Plural(len(cfg.Projections), "projection", "projections"), english.Plural(len(services), "service", "services"))
	if len(cfg.Checks) > 0 {
		fmt.Fprintf(a.out, ", %s", english.Plural(len(cfg.Checks), "check service", "check services"))
	}
	fmt.Fprintln(a.out)
	return nil
}
