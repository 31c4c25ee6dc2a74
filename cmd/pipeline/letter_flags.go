package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/spf13/cobra"
)

// letterFlags select dead letters, by ids or by a filter, and say how.
type letterFlags struct {
	filter              store.LetterFilter
	stage               string
	all, yes, dry, wait bool
	reason              string
}

func letterFilterFlags(c *cobra.Command, f *store.LetterFilter, stage *string) {
	c.Flags().StringVar(stage, "stage", "", "only this stage: "+english.WordSeries(stageNames, "or"))
	c.Flags().StringVar(&f.Source, "source", "", "only events of this source")
	c.Flags().StringVar(&f.Service, "service", "", "only this service, customer/projection@sink")
	c.Flags().StringVar(&f.Entity, "entity", "", "only this entity")
	c.Flags().StringVar(&f.Code, "code", "", "only this reason, for instance bad_json")
	_ = c.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(stageNames, cobra.ShellCompDirectiveNoFileComp))
}

// checkLetterWords refuses an unknown stage or state. An empty word passes.
func checkLetterWords(stage, state string) error {
	if stage != "" && !slices.Contains(stageNames, stage) {
		return &usageError{fmt.Errorf("--stage %s: want %s", stage, english.WordSeries(stageNames, "or"))}
	}
	if state != "" && !slices.Contains(letterStates(), state) {
		return &usageError{fmt.Errorf("--state %s: want %s", state, english.WordSeries(letterStates(), "or"))}
	}
	return nil
}

// letterStates are the values of --state.
func letterStates() []string {
	return []string{string(store.LetterOpen), string(store.LetterRetrying), string(store.LetterReplayed), string(store.LetterObsolete), string(store.LetterDiscarded), "all"}
}

func letterID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, &usageError{fmt.Errorf("%q is no id of a dead letter", text)}
	}
	return id, nil
}

// command completes a command that acts on selected letters: verb asks back, act acts.
func (f *letterFlags) command(a *app, c *cobra.Command, verb string, act func(ctx context.Context, l operate.Letters) error) *cobra.Command {
	c.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := f.letters(args)
		if err != nil {
			return err
		}
		if err := f.confirmAll(cmd.Context(), a, l, verb); err != nil {
			return err
		}
		return act(cmd.Context(), l)
	}
	letterFilterFlags(c, &f.filter, &f.stage)
	c.Flags().BoolVar(&f.all, "all", false, "all open ones that the filters leave")
	c.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask (--all)")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit")
	a.completeServices(c, false)
	return a.needConfig(c)
}

// letters returns the selection of a command line.
func (f *letterFlags) letters(args []string) (operate.Letters, error) {
	if err := checkLetterWords(f.stage, ""); err != nil {
		return operate.Letters{}, err
	}
	f.filter.Stage = store.Stage(f.stage)
	filtered := f.filter != store.LetterFilter{}
	switch {
	case f.all == (len(args) > 0):
		return operate.Letters{}, &usageError{errors.New("name letters by their ids, or say --all, with filters if you like")}
	case !f.all && filtered:
		return operate.Letters{}, &usageError{errors.New("filters go with --all")}
	case f.all:
		return operate.Letters{Filter: f.filter}, nil
	}
	l := operate.Letters{}
	for _, arg := range args {
		id, err := letterID(arg)
		if err != nil {
			return l, err
		}
		l.IDs = append(l.IDs, id)
	}
	return l, nil
}

// confirmAll asks back before something is done to all.
func (f *letterFlags) confirmAll(ctx context.Context, a *app, l operate.Letters, verb string) error {
	if !f.all || f.yes || f.dry {
		return nil
	}
	if !a.canAsk() {
		return a.confirm(ctx, "")
	}
	var n int
	if err := a.withStore(ctx, func(s assemble.Store) (err error) {
		n, err = operate.CountLetters(ctx, s, l)
		return err
	}); err != nil {
		return err
	}
	if err := a.confirm(ctx, fmt.Sprintf("%s %s?", verb, deadLetters(n))); err != nil {
		return err
	}
	f.yes = true
	a.args = append(a.args, "--yes")
	return nil
}

func deadLetters(n int) string {
	return english.Plural(n, "dead letter", "dead letters")
}

// stageNames are the stages at which a record may die.
var stageNames = func() (names []string) { //nolint:gochecknoglobals // never written
	for _, s := range store.Stages {
		names = append(names, string(s))
	}
	return names
}()
