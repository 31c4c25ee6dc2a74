package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

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
	c.Flags().StringVar(stage, "stage", "", "only this stage: "+english.WordSeries(stageNames(), "or"))
	c.Flags().StringVar(&f.Source, "source", "", "only events of this source")
	c.Flags().StringVar(&f.Service, "service", "", "only this service, customer/projection@sink")
	c.Flags().StringVar(&f.Entity, "entity", "", "only this entity")
	c.Flags().StringVar(&f.Code, "code", "", "only this reason, for instance bad_json")
	_ = c.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(stageNames(), cobra.ShellCompDirectiveNoFileComp))
}

// checkLetterWords refuses a stage or a state that there is not; an empty word is fine.
func checkLetterWords(stage, state string) error {
	if stage != "" && !slices.Contains(stageNames(), stage) {
		return &usageError{fmt.Errorf("--stage %s: want %s", stage, english.WordSeries(stageNames(), "or"))}
	}
	if !slices.Contains([]string{"", "open", "replayed", "obsolete", "discarded", "all"}, state) {
		return &usageError{fmt.Errorf("--state %s: want open, replayed, obsolete, discarded or all", state)}
	}
	return nil
}

func letterID(text string) (int64, error) {
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, &usageError{fmt.Errorf("%q is no id of a dead letter", text)}
	}
	return id, nil
}

func (f *letterFlags) add(a *app, c *cobra.Command) *cobra.Command {
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
	if a.forwarded != nil || !isTerminal(a.in) || !isTerminal(a.err) {
		return a.confirm(ctx, "")
	}
	var n int
	if err := a.withStore(ctx, func(s assemble.Store) (err error) {
		n, err = (&operate.Env{Store: s}).CountLetters(ctx, l)
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

func (a *app) dlqReplayCommand() *cobra.Command {
	var f letterFlags
	c := &cobra.Command{
		Use:   "replay [ID...]",
		Short: "Bring dead letters back to the start of the flow",
		Long: "Bring dead letters back to the start of the flow. An event enters again, as it was or as it was edited, unless its\n" +
			"source sent something newer for the entity since: then the letter is obsolete. What died on its way to a service is\n" +
			"decided again from what the entity is now; a sink that keeps every change gets that very change, late.",
		Example: "  weir dlq replay -c weir.yaml 17 18 --wait\n  weir dlq replay -c weir.yaml --all --service acme/ripeness@hook --yes",
		RunE:    func(cmd *cobra.Command, args []string) error { return a.replayLetters(cmd.Context(), args, &f) },
	}
	c.Flags().BoolVar(&f.dry, "dry-run", false, "show what would be done with each, do nothing")
	c.Flags().BoolVar(&f.wait, "wait", false, "return when they are decided")
	return f.add(a, c)
}

// replayLetters replays letters and fails when one of them cannot be replayed.
func (a *app) replayLetters(ctx context.Context, args []string, f *letterFlags) error {
	l, err := f.letters(args)
	if err != nil {
		return err
	}
	if err := f.confirmAll(ctx, a, l, "Replay"); err != nil {
		return err
	}
	return a.operating(ctx, "", func(a *app, env *operate.Env) error {
		if err := lettersTotal(ctx, env, l); err != nil {
			return err
		}
		// Ids and words for each letter, not the letters: some hundred bytes each.
		var all []operate.LetterReplay
		refused := 0
		err := env.ReplayLetters(ctx, l, f.reason, f.dry, func(r operate.LetterReplay) {
			if r.Refused != "" {
				refused++
			}
			if all = append(all, r); env.Progress != nil {
				env.Progress(int64(len(all)), 0)
			}
		})
		if err != nil {
			return err
		}
		if f.wait && !f.dry && refused < len(all) {
			if err := env.Wait(ctx); err != nil {
				return err
			}
			if err := env.FillSent(ctx, all); err != nil {
				return err
			}
		}
		if err := a.printReplayed(all, f.dry); err != nil {
			return err
		}
		if !a.json && !f.dry && refused < len(all) {
			a.next(env.Decide != nil, f.wait)
		}
		if refused > 0 {
			return fmt.Errorf("%d of %s cannot be replayed", refused, deadLetters(len(all)))
		}
		return nil
	})
}

func (a *app) printReplayed(all []operate.LetterReplay, dry bool) error {
	if a.json {
		if all == nil {
			all = []operate.LetterReplay{}
		}
		return a.printJSON(all)
	}
	if len(all) == 0 {
		fmt.Fprintln(a.out, "no open dead letters")
	}
	words := map[operate.ReplayMode]string{
		operate.AsEvent: "its event enters again", operate.AsDecision: "decided again from what the entity is now", operate.AsChange: "the change is sent again, late",
	}
	for _, r := range all {
		switch {
		case r.Refused != "":
			fmt.Fprintf(a.out, "%d: stays: %s\n", r.ID, r.Refused)
		case dry:
			fmt.Fprintf(a.out, "%d: would be replayed: %s\n", r.ID, words[r.Way])
		case r.State == store.LetterObsolete:
			fmt.Fprintf(a.out, "%d: obsolete: something newer came in between\n", r.ID)
		case r.State == store.LetterReplayed:
			sent := ""
			switch {
			case len(r.Sent) > 0:
				sent = "; sent on to " + strings.Join(r.Sent, ", ")
			case r.Sent != nil:
				sent = "; nobody's view changed, so nothing is sent"
			}
			fmt.Fprintf(a.out, "%d: replayed: %s%s\n", r.ID, words[r.Way], sent)
		case r.State == store.LetterOpen:
			fmt.Fprintf(a.out, "%d: open again: %s, and it died once more\n", r.ID, words[r.Way])
		default:
			fmt.Fprintf(a.out, "%d: on its way: %s\n", r.ID, words[r.Way])
		}
	}
	return nil
}

func (a *app) dlqDiscardCommand() *cobra.Command {
	var f letterFlags
	c := &cobra.Command{
		Use:     "discard [ID...]",
		Short:   "Set dead letters aside",
		Long:    "Set dead letters aside. They stay listed with --state discarded until their retention is over.",
		Example: "  weir dlq discard -c weir.yaml 17\n  weir dlq discard -c weir.yaml --all --code bad_json --reason \"the producer was broken\" --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := f.letters(args)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if err := f.confirmAll(ctx, a, l, "Discard"); err != nil {
				return err
			}
			// The store alone is enough, and two processes may have it open.
			return a.withStore(ctx, func(s assemble.Store) error {
				return a.withProgress(&operate.Env{Store: s, Actor: operate.Actor()}, func(a *app, env *operate.Env) error { return a.discardLetters(ctx, env, l, f.reason) })
			})
		},
	}
	return f.add(a, c)
}

func (a *app) discardLetters(ctx context.Context, env *operate.Env, l operate.Letters, reason string) error {
	if err := lettersTotal(ctx, env, l); err != nil {
		return err
	}
	n, err := env.DiscardLetters(ctx, l, reason)
	if err != nil {
		return err
	}
	if missing := len(slices.Compact(slices.Sorted(slices.Values(l.IDs)))) - n; missing > 0 {
		err = fmt.Errorf("%s not discarded: not open, or not there", deadLetters(missing))
	}
	if a.json {
		return errors.Join(a.printJSON(map[string]int{"discarded": n}), err)
	}
	fmt.Fprintf(a.out, "%s discarded\n", deadLetters(n))
	return err
}

// lettersTotal lets the progress of env be that of all selected letters.
func lettersTotal(ctx context.Context, env *operate.Env, l operate.Letters) error {
	show := env.Progress
	if show == nil {
		return nil
	}
	total, err := env.CountLetters(ctx, l)
	env.Progress = func(done, _ int64) { show(done, int64(total)) }
	return err
}

func (a *app) dlqEditCommand() *cobra.Command {
	var file, reason string
	c := &cobra.Command{
		Use:   "edit ID",
		Short: "Correct the payload of a dead letter, before it is replayed",
		Long: "Correct the payload of a dead letter, before it is replayed. The new one comes from --file, from standard input with\n" +
			"--file -, or from $EDITOR. The first payload is kept. A letter of ingest holds the event as it came; one of decide\n" +
			"holds the document that was taken from it, without what is stripped.",
		Example: "  weir dlq edit -c weir.yaml 17 --file corrected.json\n  weir dlq edit -c weir.yaml 17",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := letterID(args[0])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if file == "" && !isTerminal(a.in) {
				return &usageError{errors.New("there is no terminal for an editor: name the new payload by --file, or --file - for standard input")}
			}
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.withStoreOf(ctx, cfg, func(s assemble.Store) error {
				env := &operate.Env{Store: s, Actor: operate.Actor()}
				l, err := env.Editable(ctx, id)
				if err != nil {
					return err
				}
				limit := cfg.Sources.MaxEventOf(l.Source)
				payload, err := a.edited(ctx, file, l.Payload, limit)
				if err != nil {
					return err
				}
				changed := !bytes.Equal(payload, l.Payload)
				if changed {
					if err := env.EditLetter(ctx, l, payload, limit, reason); err != nil {
						return err
					}
				}
				if a.json {
					return a.printJSON(map[string]any{"id": id, "changed": changed, "valid_json": json.Valid(payload)})
				}
				if !changed {
					fmt.Fprintf(a.out, "dead letter %d is as it was\n", id)
					return nil
				}
				fmt.Fprintf(a.out, "dead letter %d is changed; to bring it back: weir dlq replay -c %s %d\n", id, a.config, id)
				if !json.Valid(payload) {
					fmt.Fprintln(a.err, "note: the new payload is no valid JSON")
				}
				return nil
			})
		},
	}
	c.Flags().StringVarP(&file, "file", "f", "", "file with the new payload; - reads standard input")
	c.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	_ = c.MarkFlagFilename("file")
	return a.needConfig(c)
}

// edited returns the new payload, from a file or from an editor. Of a larger one
// than limit it returns enough to be refused.
func (a *app) edited(ctx context.Context, file string, old []byte, limit int) ([]byte, error) {
	if file != "" {
		r, err := a.open(file)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		payload, err := io.ReadAll(io.LimitReader(r, int64(limit)+2)) // with a newline at its end
		// The newline that ends a file is not part of an event.
		return bytes.TrimSuffix(payload, []byte("\n")), err
	}
	f, err := os.CreateTemp("", "weir-letter-*.json")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(old)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	editor := os.Getenv("EDITOR")
	if editor == "" {
		editor = "vi"
	}
	// As others do it: the variable may hold arguments.
	cmd := exec.CommandContext(ctx, "sh", "-c", editor+` "$1"`, editor, f.Name()) // #nosec G204 G702 -- who runs the command chose the editor
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("the editor ended with a failure, so nothing is changed: %w", err)
	}
	payload, err := os.ReadFile(f.Name())
	if !bytes.HasSuffix(old, []byte("\n")) {
		payload = bytes.TrimSuffix(payload, []byte("\n")) // most editors add one
	}
	return payload, err
}
