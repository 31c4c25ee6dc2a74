package main

import (
	"errors"
	"fmt"
	"slices"
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
			var names []string
			for _, c := range cmd.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, c.Name())
				}
			}
			if hint := didYouMean(cmd.CommandPath()+" ", args[0], names); hint != "" {
				return &usageError{&hintError{err, hint}}
			}
			return usageOf(cmd, err)
		}
		if err := matchArgs(words, args); err != nil {
			return usageOf(cmd, err)
		}
		return nil
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// matchArgs compares the arguments with their placeholders.
func matchArgs(words, args []string) error {
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
		return fmt.Errorf("unexpected argument %q: this command takes none", args[0])
	case len(args) > most:
		return fmt.Errorf("unexpected argument %q: this command takes %s", args[most], strings.Join(words, " "))
	}
	return nil
}

// checkFlags turns cobra's errors about flags into usage errors. Cobra checks them again later
// and then finds nothing.
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
	var flag *pflag.NotExistError
	if errors.As(err, &flag) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if hint := didYouMean("--", flag.GetSpecifiedName(), names); hint != "" {
			return &usageError{&hintError{err, hint}}
		}
	}
	return &usageError{hinted(err, "%s --help shows how", cmd.CommandPath())}
}

// unknownWord returns the usage error of a word that is none of names, with suggestions.
func unknownWord(err error, word string, names []string) error {
	if hint := didYouMean("", word, names); hint != "" {
		err = &hintError{err, hint}
	}
	return &usageError{err}
}

// didYouMean returns a question that suggests the names similar to a word, each after a
// prefix, or "" if none is. The distance is cobra's for commands.
func didYouMean(prefix, word string, names []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	likely := all.SuggestionsFor(word)
	if len(likely) == 0 {
		return ""
	}
	for i := range likely {
		likely[i] = prefix + likely[i]
	}
	return fmt.Sprintf("did you mean %s?", english.OxfordWordSeries(likely, "or"))
}
