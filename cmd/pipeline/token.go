package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/durable"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

func newTokenCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make tokens of the API",
	}
	c.AddCommand(newTokenNewCommand(a))
	return c
}

// tokenEntry is an entry of the tokens file, see config.Token.
type tokenEntry struct {
	ID      string   `json:"id" yaml:"id"`
	Hash    string   `json:"hash" yaml:"hash"`
	Tenant  string   `json:"tenant" yaml:"tenant"`
	May     []string `json:"may" yaml:"may,flow"`
	Sources []string `json:"sources,omitempty" yaml:"sources,flow,omitempty"`
	Expires string   `json:"expires,omitempty" yaml:"expires,omitempty"`
}

type tokenNewOptions struct {
	*app
	e             tokenEntry
	expires, file string
}

func newTokenNewCommand(a *app) *cobra.Command {
	o := &tokenNewOptions{app: a}
	c := &cobra.Command{
		Use:   "new",
		Short: "Make a token; it is shown this once",
		Long: "Make a token and the entry for the file that api.tokens names, which has only the token's hash.\n" +
			"The token is shown this once: give it to its holder. With --file the entry is added to the file;\n" +
			"a running pipeline knows it a second later.",
		Example: "  weir token new --tenant acme --may ingest --source orders --expires 90d\n" +
			"  weir token new --tenant acme --may check --file tokens.yaml",
		RunE: func(_ *cobra.Command, _ []string) error { return o.run() },
	}
	f := c.Flags()
	f.StringVar(&o.e.Tenant, "tenant", "", "whose token it is; the services of the customer of that name are its")
	f.StringSliceVar(&o.e.May, "may", nil, "what it may do: ingest, check")
	f.StringSliceVar(&o.e.Sources, "source", nil, "sources that it may ingest into; * is all")
	f.StringVar(&o.expires, "expires", "", "how long it is valid, like 90d; without it, it never expires")
	f.StringVar(&o.file, "file", "", "add the entry to this file, which is made if it is not there")
	return c
}

func (o *tokenNewOptions) run() error {
	if o.e.Tenant == "" || len(o.e.May) == 0 {
		return &usageError{errors.New("--tenant and --may are needed")}
	}
	if o.expires != "" {
		var d config.Duration
		if err := d.UnmarshalText([]byte(o.expires)); err != nil || d <= 0 {
			return &usageError{fmt.Errorf("--expires %q is not a duration, like 90d or 12h", o.expires)}
		}
		o.e.Expires = time.Now().UTC().Add(d.D()).Format(time.RFC3339)
	}
	var token string
	o.e.ID, token = auth.NewToken()
	o.e.Hash = auth.HashOf(token).String()
	entry, err := yaml.Dump(map[string][]tokenEntry{"tokens": {o.e}}, yaml.WithCompactSeqIndent(false))
	if err != nil {
		return err
	}
	if err := checkEntry(entry); err != nil {
		return &usageError{err}
	}
	_, lines, _ := strings.Cut(string(entry), "\n")
	if o.file != "" {
		if err := addToken(o.file, lines); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return o.printJSON(map[string]any{"token": token, "entry": o.e})
	case o.file != "":
		fmt.Fprintln(o.out, token)
	default:
		fmt.Fprintf(o.out, "%s\n\ntokens:\n%s", token, lines)
	}
	return nil
}

// checkEntry refuses an entry that is invalid in a file of tokens.
func checkEntry(text []byte) error {
	_, err := config.ParseTokens(text)
	var faults *config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	var wrong []string
	for _, f := range faults.List {
		wrong = append(wrong, fmt.Sprintf("%s %s; want %s", strings.TrimPrefix(f.Path, "tokens[0]."), f.Problem, f.Want))
	}
	return errors.New(strings.Join(wrong, "\n"))
}

// addToken adds lines of one entry to a file of tokens. The file is replaced
// as a whole: who reads it sees the old or the new one.
func addToken(path, lines string) (err error) {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the link stays
	}
	// Another one who adds a token waits, so that neither is lost. The folder is
	// locked: the file is another one after each replacement.
	lock := flock.New(filepath.Dir(path), flock.SetFlag(os.O_RDONLY))
	if err := lock.Lock(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	text, mode, err := readTokens(path)
	if err != nil {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, lines...)
	if _, err := config.ParseTokens(text); err != nil {
		return fmt.Errorf("%s does not end with its list of tokens, one entry per line: add the entry by hand", path)
	}
	return durable.Replace(path, text, mode)
}

// readTokens returns a file of tokens and its mode. Without a file it returns the text of an
// empty one.
func readTokens(path string) (text []byte, mode fs.FileMode, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []byte("# Who may use the API; hashes of tokens only.\ntokens:\n"), 0o644, nil
	case err != nil:
		return nil, 0, err
	}
	if _, err := config.LoadTokens(path, nil); err != nil {
		return nil, 0, &usageError{err}
	}
	text, err = os.ReadFile(path)
	return text, info.Mode().Perm(), err
}
