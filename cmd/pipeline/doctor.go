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

type doctorOptions struct {
	*app
}

func newDoctorCommand(a *app) *cobra.Command {
	o := &doctorOptions{app: a}
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine the dependencies of a configuration: servers, clocks, rights, topics, disks",
		Long: "Examine the dependencies of a configuration: whether servers, sources and targets answer; versions and clocks; settings and\n" +
			"rights of the database, the gate and the topics; room on disks and limits of processes. Each finding has its remedy.\n" +
			"degraded is a warning, down a fault. Nothing is changed, and nothing sent. Exit status 1 when something is down.",
		Example: "  weir doctor -c weir.yaml\n  weir doctor --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	return o.needConfig(c)
}

func (o *doctorOptions) run(ctx context.Context) error {
	cfg, err := o.load()
	if err != nil {
		return err
	}
	findings := doctor.Examine(ctx, cfg, doctor.Options{})
	if o.json {
		err = o.printJSON(findings)
	} else {
		printFindings(o.app, findings)
	}
	if err == nil && doctor.Worst(findings) == operate.LevelDown {
		n := 0
		for _, f := range findings {
			if f.Level == operate.LevelDown {
				n++
			}
		}
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
