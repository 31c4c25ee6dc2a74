package main

import (
	"fmt"

	"github.com/seed-86dfc502/weir/config/schema"
	"github.com/spf13/cobra"
)

func newSchemaCommand(a *app) *cobra.Command {
	files := map[string][]byte{"main": schema.Main, "customer": schema.Customer}
	return &cobra.Command{
		Use:   "schema [main|customer]",
		Short: "Print the JSON Schema of the main file, or of a customer's",
		Long: "Print the JSON Schema of the main file, or of a customer's: every key with its type, default and limits. An editor\n" +
			"completes and checks with it, for instance by a first line like\n\n" +
			"  # yaml-language-server: $schema=weir.schema.json",
		Example:   "  weir schema > weir.schema.json\n  weir schema customer > customer.schema.json",
		ValidArgs: []string{"main", "customer"},
		RunE: func(_ *cobra.Command, args []string) error {
			which := "main"
			if len(args) > 0 {
				which = args[0]
			}
			text, ok := files[which]
			if !ok {
				return &usageError{hinted(fmt.Errorf("there is no schema %q", which), "main or customer")}
			}
			_, err := a.out.Write(text)
			return err
		},
	}
}
