package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate/noise"
	"github.com/spf13/cobra"
)

type noiseOptions struct {
	*app
	sources []string
	top     int
}

func newNoiseCommand(a *app) *cobra.Command {
	o := &noiseOptions{app: a}
	c := &cobra.Command{
		Use:   "noise",
		Short: "Tell which fields cause suppressed updates, and the strip rules that would stop them at the door",
		Long: "Tell, per source, which fields were changed by events that changed something and reached no customer, and the strip rules\n" +
			"to paste: only for fields that no projection reads. It shows what deciding processes of this configuration saw in the\n" +
			"last seven days, written down every ten seconds; of many events it is estimated from samples.",
		Example: "  weir noise -c weir.yaml\n  weir noise -c weir.yaml --source registry --json",
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	c.Flags().StringArrayVar(&o.sources, "source", nil, "only this source; may be repeated")
	c.Flags().IntVar(&o.top, "top", 10, "show so many causes per source")
	_ = c.RegisterFlagCompletionFunc("source", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		cfg, err := assemble.Load(o.config, o.env, config.AllowUnsetEnv())
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return cfg.Sources.Names(), cobra.ShellCompDirectiveNoFileComp
	})
	return o.needConfig(c)
}

func (o *noiseOptions) run(ctx context.Context) error {
	if o.top < 1 {
		return &usageError{fmt.Errorf("--top must be at least 1")}
	}
	cfg, err := o.load()
	if err != nil {
		return err
	}
	for _, name := range o.sources {
		if cfg.Sources.Find(name) == nil {
			return &usageError{fmt.Errorf("--source %s: the configuration has none of that name", name)}
		}
	}
	return o.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		r, err := noise.Read(ctx, s, cfg, func(source string) bool { return len(o.sources) == 0 || slices.Contains(o.sources, source) })
		if err != nil {
			return err
		}
		for i := range r.Sources {
			r.Sources[i].Fields = r.Sources[i].Fields[:min(o.top, len(r.Sources[i].Fields))]
		}
		if o.json {
			return o.printJSON(r)
		}
		return printNoise(o.app, r)
	})
}

func printNoise(a *app, r noise.Result) error {
	if r.From == "" {
		fmt.Fprintln(a.out, "Nothing was seen yet under this configuration.")
		if r.Others {
			fmt.Fprintln(a.out, "Counts under an earlier one do not apply to it.")
		}
		return nil
	}
	days := r.From
	if r.To != r.From {
		days += " to " + r.To
	}
	fmt.Fprintf(a.out, "Counts under this configuration, %s\n", days)
	n := humanize.Comma
	percent := func(part, all int64) string {
		if all == 0 {
			return "0 %"
		}
		return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(all))
	}
	offered := false
	for i := range r.Sources {
		s := &r.Sources[i]
		fmt.Fprintf(a.out, "\n%s: %s events\n", s.Source, n(s.Events))
		if s.Events == 0 {
			continue
		}
		fmt.Fprintf(a.out, "  %s (%s) noise: only stripped fields changed\n", n(s.Noise), percent(s.Noise, s.Events))
		fmt.Fprintf(a.out, "  %s (%s) changed something and reached no customer\n", n(s.Suppressed), percent(s.Suppressed, s.Events))
		for i := range s.Fields {
			printField(a.out, &s.Fields[i], percent(s.Fields[i].Events, s.Events))
		}
		if s.Other > 0 {
			fmt.Fprintf(a.out, "    %s (%s) other fields\n", n(s.Other), percent(s.Other, s.Events))
		}
		if s.Offered != nil {
			offered = true
			rules := make([]string, len(s.Offered))
			for i, rule := range s.Offered {
				rules[i] = terminal.Visible(rule)
			}
			fmt.Fprintf(a.out, "  stripping %s would have made %s of them (%s of all) noise\n",
				strings.Join(rules, ", "), n(s.Saved), percent(s.Saved, s.Events))
		}
	}
	if !offered {
		return nil
	}
	fmt.Fprintln(a.out, "\nTo paste:")
	return printRules(a.out, r.Sources)
}

func printField(out io.Writer, f *noise.Field, share string) {
	state := "no projection reads it"
	switch {
	case len(f.ReadBy) > 0:
		state = "read by " + strings.Join(f.ReadBy[:min(3, len(f.ReadBy))], ", ")
		if len(f.ReadBy) > 3 {
			state += fmt.Sprintf(" and %d more", len(f.ReadBy)-3)
		}
	case !f.Strippable:
		state = "no rule can name it"
	case f.Saves < f.Events:
		state += fmt.Sprintf(" (%s without a field that is read)", humanize.Comma(f.Saves))
	}
	fmt.Fprintf(out, "    %s (%s) %s: %s; such as %s of %s\n", humanize.Comma(f.Events), share, cmp.Or(terminal.Visible(f.Pattern), "(the whole document)"), state,
		cmp.Or(terminal.Visible(f.Example), "the document"), terminal.Visible(f.Entity))
}

// printRules prints the lists of rules as the configuration takes them. Texts
// are quoted as JSON, which YAML reads.
func printRules(out io.Writer, reports []noise.Report) error {
	fmt.Fprintln(out, "sources:")
	for _, r := range reports {
		if r.Strip == nil {
			continue
		}
		name := r.Source
		if !plainKey.MatchString(name) || keywords.MatchString(name) {
			name = quote(name)
		}
		rules := make([]string, len(r.Strip))
		for i, pattern := range r.Strip {
			rules[i] = quote(pattern)
		}
		if _, err := fmt.Fprintf(out, "  %s:\n    strip: [%s]\n", name, strings.Join(rules, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// plainKey matches a key that needs no quotes.
var plainKey = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// keywords matches words that YAML reads as another type than text.
var keywords = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)                                                // a string always has a JSON form
	return terminal.Harmless(strings.TrimSuffix(b.String(), "\n")) // escapes as YAML has them
}
