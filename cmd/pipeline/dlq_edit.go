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

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/spf13/cobra"
)

type dlqEditOptions struct {
	*app
	file, reason string
}

func newDlqEditCommand(a *app) *cobra.Command {
	o := &dlqEditOptions{app: a}
	c := &cobra.Command{
		Use:   "edit ID",
		Short: "Correct the payload of a dead letter, before it is replayed",
		Long: "Correct the payload of a dead letter, before it is replayed. The new one comes from --file, from standard input with\n" +
			"--file -, or from $EDITOR. The first payload is kept. A letter of ingest holds the event as it came; one of decide\n" +
			"holds the document that was taken from it, without what is stripped.",
		Example: "  weir dlq edit -c weir.yaml 17 --file corrected.json\n  weir dlq edit -c weir.yaml 17",
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	c.Flags().StringVarP(&o.file, "file", "f", "", "file with the new payload; - reads standard input")
	c.Flags().StringVar(&o.reason, "reason", "", "why, for the audit")
	_ = c.MarkFlagFilename("file")
	return o.needConfig(c)
}

func (o *dlqEditOptions) run(ctx context.Context, args []string) error {
	id, err := letterID(args[0])
	if err != nil {
		return err
	}
	if o.file == "" && !isTerminal(o.in) {
		return &usageError{errors.New("there is no terminal for an editor: name the new payload by --file, or --file - for standard input")}
	}
	cfg, err := o.load()
	if err != nil {
		return err
	}
	return o.withStoreOf(ctx, cfg, func(s assemble.Store) error {
		l, err := operate.Editable(ctx, s, id)
		if err != nil {
			return err
		}
		limit := cfg.Sources.MaxEventOf(l.Source)
		payload, err := editPayload(ctx, o.app, o.file, l.Payload, limit)
		if err != nil {
			return err
		}
		changed := !bytes.Equal(payload, l.Payload)
		if changed {
			if err := operate.EditLetter(ctx, s, l, payload, limit, operate.Actor(), o.reason); err != nil {
				return err
			}
		}
		if o.json {
			return o.printJSON(map[string]any{"id": id, "changed": changed, "valid_json": json.Valid(payload)})
		}
		if !changed {
			fmt.Fprintf(o.out, "dead letter %d is as it was\n", id)
			return nil
		}
		fmt.Fprintf(o.out, "dead letter %d is changed; to bring it back: weir dlq replay -c %s %d\n", id, o.config, id)
		if !json.Valid(payload) {
			fmt.Fprintln(o.err, "note: the new payload is no valid JSON")
		}
		return nil
	})
}

// editPayload returns the new payload, from a file or from an editor. Of a larger one
// than limit it returns enough to be refused.
func editPayload(ctx context.Context, a *app, file string, old []byte, limit int) ([]byte, error) {
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
