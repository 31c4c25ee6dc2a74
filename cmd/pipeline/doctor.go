package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/doctor"
	"github.com/spf13/cobra"
)

func (a *app) doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Examine what a configuration stands on: servers, clocks, rights, topics, disks",
		Long: "Examine what a configuration stands on: whether servers, sources and targets answer; versions and clocks; settings and\n" +
			"rights of the database, the gate and the topics; room on disks and limits of processes. Each finding has its remedy.\n" +
			"degraded is a warning, down a fault. Nothing is changed, and nothing sent. Exit status 1 when something is down.",
		Example: "  weir doctor -c weir.yaml\n  weir doctor --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			findings := doctor.Examine(cmd.Context(), cfg, doctor.Options{})
			if a.json {
				err = a.printJSON(findings)
			} else {
				a.printFindings(findings)
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
		},
	}
	return a.needConfig(c)
}

func (a *app) printFindings(findings []operate.Item) {
	color := colors(a.out, a.env)
	for _, f := range findings {
		level := string(f.Level)
		fmt.Fprintf(a.out, "%s%s  %s: %s\n", color.level(level), strings.Repeat(" ", len(operate.LevelDegraded)-len(level)), color.bold(f.What), terminal.Visible(f.Why))
		if f.Do != "" {
			fmt.Fprintf(a.out, "          do: %s\n", f.Do)
		}
	}
}
