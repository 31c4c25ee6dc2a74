// Command pipeline is Weir: it merges events about an entity from several
// sources, makes one projection per customer, and lets an update through to a
// customer only when that customer's projection really changed.
//
// Results go to standard output, errors and logs to standard error. Exit
// status: 0 ok, 1 failed, 2 wrong usage or configuration, 3 a run until idle that
// stopped with work left.
package main

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/seed-86dfc502/weir/config"
	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // for an image from an empty base, which has no roots of its own
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitLeft   = 3
)

// usageError is a fault of the command line or of the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitError is an exit status whose reason was printed already.
type exitError struct{ status int }

func (e *exitError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// leftError says that a run until idle stopped with work left.
type leftError struct{ what string }

func (e *leftError) Error() string { return "stopped: " + e.what }

// console is the input and output of a command.
type console struct {
	out, err io.Writer
	in       io.Reader
	json     bool
	renamed  map[string]string // current names of renamed services, of the loaded configuration
}

// app is what all commands share.
type app struct {
	console
	env    func(string) (string, bool)
	config string
	loaded *config.Config // of the file config, once a command has it
	args   []string       // the command line
}

// gcPercent trades memory, which windows bound, for less work of the collector.
const gcPercent = 300

func main() {
	if _, set := os.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	// Libraries use it, net/http for answers that came without a request, which it quotes.
	stdlog.SetOutput(io.Discard) //nolint:forbidigo // silences package log
	a := &app{console: console{out: os.Stdout, err: os.Stderr, in: os.Stdin}, env: os.LookupEnv}
	os.Exit(a.main(context.Background(), os.Args[1:]))
}

// main runs one command. The first signal ends it in order, a second one at once.
func (a *app) main(ctx context.Context, args []string) int {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		<-signals
		stop()
		s := <-signals
		fmt.Fprintln(a.err, "stopped at once by a second signal")
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return a.execute(ctx, args)
}

// execute runs one command and returns the exit status.
func (a *app) execute(ctx context.Context, args []string) int {
	a.args = args
	results := &output{Writer: a.out}
	a.out = results
	root := newRootCommand(a)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil && results.failed != nil {
		err = fmt.Errorf("the result could not be written: %w", results.failed)
	}
	return a.report(err)
}

// output remembers that a result could not be written: the command failed then.
type output struct {
	io.Writer
	failed error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if err != nil {
		o.failed = err
	}
	return n, err
}

func newRootCommand(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "Send a customer an update only when that customer's view really changed",
		Version:       buildOf(debug.ReadBuildInfo()).String(),
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			a.firstNames(cmd, args)
			return checkFlags(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print results as JSON")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageOf(cmd, err) })
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"begin", "Begin:", []*cobra.Command{newInitCommand(a), newDemoCommand(a), newValidateCommand(a), newTestCommand(a), newPlanCommand(a), newSchemaCommand(a)}},
		{"run", "Run:", []*cobra.Command{newRunCommand(a), newReloadCommand(a), newMigrateCommand(a), newImportCommand(a), newSourceCommand(a), newTokenCommand(a), newAddCommand(a), newCustomerCommand(a)}},
		{"inspect", "Inspect:", []*cobra.Command{newStatusCommand(a), newPageCommand(a), newDoctorCommand(a), newExplainCommand(a), newNoiseCommand(a), newAuditCommand(a), newDeliveriesCommand(a), newMCPCommand(a)}},
		{"repair", "Repair:", []*cobra.Command{newPauseCommand(a), newResumeCommand(a), newGuardCommand(a), newReplayCommand(a), newResetCommand(a), newReconcileCommand(a), newDlqCommand(a)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	checkArgs(root)
	return root
}

// needConfig adds the flag that names the configuration.
func (a *app) needConfig(c *cobra.Command) *cobra.Command {
	c.Flags().StringVarP(&a.config, "config", "c", "weir.yaml", "main configuration file")
	_ = c.MarkFlagFilename("config", "yaml", "yml")
	return c
}
