package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/doctor"
	"github.com/spf13/cobra"
)

func newDoctorCommand(a *app) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:   "doctor",
		Short: "Examine the dependencies of a configuration: servers, clocks, rights, topics, disks",
		Long: "Examine the dependencies of a configuration: whether servers, sources and targets answer; versions and clocks; settings and\n" +
			"rights of the database, the gate and the topics; room on disks and limits of processes. Each finding has its remedy.\n" +
			"degraded is a warning, down a fault. Nothing is changed, and nothing sent. Exit status 1 when something is down.",
		Example: "  weir doctor -c weir.yaml\n  weir doctor --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), a) },
	})
}

func runDoctor(ctx context.Context, a *app) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	findings := doctor.Examine(ctx, cfg, doctor.Options{})
	if a.json {
		err = a.printJSON(findings)
	} else {
		printFindings(a, findings)
	}
	if n := doctor.Faults(findings); err == nil && n > 0 {
		return errors.New(english.Plural(n, "fault", "faults"))
	}
	return err
}

func printFindings(a *app, findings []operate.Item) {
	color := colors(a.out, a.env)
	for _, f := range findings {
		level := string(f.Level)
		fmt.Fprintf(a.out, "%s%s  %s: %s\n", color.level(level), strings.Repeat(" ", len(operate.LevelDegraded)-len(level)), color.bold(f.What), terminal.Visible(f.Why))
		if f.Do != "" {
			fmt.Fprintf(a.out, "          do: %s\n", f.Do)
		}
	}
}
