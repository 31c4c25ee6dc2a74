package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkArgs lets every command check its arguments against the words of its Use
// line: NAME is needed, [NAME] may be left out, and NAME... may be repeated. A group
// of commands alone shows its help, and knows no other word.
func checkArgs(c *cobra.Command) {
	if c.HasSubCommands() && c.RunE == nil {
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		words := strings.Fields(cmd.Use)[1:]
		if len(words) == 0 && len(args) > 0 && cmd.HasSubCommands() {
			err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
			if likely := suggestions(cmd, args[0]); len(likely) > 0 {
				return &usageError{hinted(err, "did you mean %s?", english.OxfordWordSeries(prefixed(cmd.CommandPath()+" ", likely), "or"))}
			}
			return usageOf(cmd, err)
		}
		if err := takes(words, args); err != nil {
			return usageOf(cmd, err)
		}
		return nil
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// takes compares arguments with the words that stand for them.
func takes(words, args []string) error {
	var needed []string
	most := len(words)
	for _, w := range words {
		if !strings.HasPrefix(w, "[") {
			needed = append(needed, strings.TrimSuffix(w, "..."))
		}
		if strings.Contains(w, "...") {
			most = len(args)
		}
	}
	switch {
	case len(args) < len(needed):
		return fmt.Errorf("missing %s", english.OxfordWordSeries(needed[len(args):], "and"))
	case len(args) > most && most == 0:
		return fmt.Errorf("%q is one word too many: this command takes no arguments", args[0])
	case len(args) > most:
		return fmt.Errorf("%q is one word too many: this command takes %s", args[most], strings.Join(words, " "))
	}
	return nil
}

// checkFlags makes what cobra finds wrong with flags a usage error: it looks once
// more by itself, later, when nothing is left to be found.
func checkFlags(cmd *cobra.Command, _ []string) error {
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return usageOf(cmd, err)
	}
	if err := cmd.ValidateFlagGroups(); err != nil {
		return usageOf(cmd, err)
	}
	if why := cmd.Flags().Lookup("reason"); why != nil {
		return checkReason(why.Value.String())
	}
	return nil
}

// usageOf is the usage error of a command, with the most helpful hint that there is.
func usageOf(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		// The commands' own measure of likeness, for flags.
		flags := &cobra.Command{SuggestionsMinimumDistance: cmd.SuggestionsMinimumDistance}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		})
		if likely := suggestions(flags, unknown.GetSpecifiedName()); len(likely) > 0 {
			return &usageError{hinted(err, "did you mean %s?", english.OxfordWordSeries(prefixed("--", likely), "or"))}
		}
	}
	return &usageError{hinted(err, "%s --help shows how", cmd.CommandPath())}
}

// suggestions are the commands that somebody may have meant.
func suggestions(c *cobra.Command, word string) []string {
	if c.SuggestionsMinimumDistance <= 0 {
		c.SuggestionsMinimumDistance = 2 // as cobra itself does
	}
	return c.SuggestionsFor(word)
}

func prefixed(with string, words []string) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = with + w
	}
	return all
}

// withFlags adds flags, each with "=" and its value, to a command line: in front, since an
// argument may stand behind "--".
func withFlags(args []string, flags ...string) []string {
	return append(flags, args...)
}
