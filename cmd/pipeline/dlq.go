package main

import (
	"github.com/spf13/cobra"
)

func newDlqCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "dlq",
		Short: "Dead letters: what could not be ingested, decided or delivered",
	}
	c.AddCommand(newDlqListCommand(a), newDlqEditCommand(a), newDlqReplayCommand(a), newDlqDiscardCommand(a))
	return c
}
