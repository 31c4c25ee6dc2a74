package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
)

func newMCPCommand(a *app) *cobra.Command {
	return a.needConfig(&cobra.Command{
		Use:   "mcp",
		Short: "Serve the commands that only read to an assistant, over standard input and output",
		Long: "Serve the commands that only read to an assistant (Model Context Protocol) over standard input and output: status, doctor,\n" +
			"explain, deliveries, noise, plan and validate, each with its JSON. None of them changes anything. The assistant sees\n" +
			"documents of entities, as explain shows them; it has the rights of the user who starts this command.",
		Example: "  weir mcp -c weir.yaml\n  claude mcp add weir -- weir mcp -c /etc/weir/weir.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return mcpServer(a).Run(cmd.Context(), &mcp.IOTransport{Reader: io.NopCloser(a.in), Writer: nopWriteCloser{a.out}})
		},
	})
}

type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// The inputs of the tools.
type (
	nothing     struct{}
	explainTool struct {
		Entity  string `json:"entity" jsonschema:"id of the entity"`
		Service string `json:"service,omitempty" jsonschema:"only this service, customer/projection@sink"`
	}
	deliveriesTool struct {
		Entity  string `json:"entity,omitempty" jsonschema:"only of this entity"`
		Service string `json:"service,omitempty" jsonschema:"only of this service, customer/projection@sink"`
		Since   string `json:"since,omitempty" jsonschema:"a time, or how long ago, such as 2h or 7d"`
		Limit   int    `json:"limit,omitempty" jsonschema:"how many, the newest; 100 unless given"`
	}
	noiseTool struct {
		Source string `json:"source,omitempty" jsonschema:"only this source"`
	}
)

// mcpServer returns the MCP server. Each tool is the command of its name.
func mcpServer(a *app) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "weir", Version: buildOf(debug.ReadBuildInfo()).Version}, nil)
	addTool(a, s, "status", "Every problem, the worst first: cause, since when, next try, remedy; and what is queued.", func(nothing) []string { return nil })
	addTool(a, s, "doctor", "Examine servers, clocks, rights, topics and disks. Nothing is sent.", func(nothing) []string { return nil })
	addTool(a, s, "validate", "Check the configuration's files.", func(nothing) []string { return nil })
	addTool(a, s, "plan", "The updates and retractions that the configuration's files would cause.", func(nothing) []string { return nil })
	addTool(a, s, "explain", "Why customers got an update of an entity, or none.", func(in explainTool) []string {
		return append(flags("service", in.Service), "--", in.Entity)
	})
	addTool(a, s, "deliveries", "Attempts to deliver, with the targets' answers.", func(in deliveriesTool) []string {
		args := append(flags("entity", in.Entity), append(flags("service", in.Service), flags("since", in.Since)...)...)
		if in.Limit > 0 {
			args = append(args, fmt.Sprint("--limit=", in.Limit))
		}
		return args
	})
	addTool(a, s, "noise", "Fields that cause suppressed updates, and rules to strip them.", func(in noiseTool) []string { return flags("source", in.Source) })
	return s
}

// flags returns a flag, or none for an empty value.
func flags(name, value string) []string {
	if value == "" {
		return nil
	}
	return []string{"--" + name + "=" + value}
}

// addTool adds the command of a name as a tool.
func addTool[In any](a *app, s *mcp.Server, name, does string, args func(In) []string) {
	tool := &mcp.Tool{Name: name, Description: does, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}}
	mcp.AddTool(s, tool, func(ctx context.Context, _ *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		var out, errs bytes.Buffer
		command := &app{console: console{out: &out, err: &errs, in: strings.NewReader("")}, env: a.env}
		code := command.execute(ctx, append([]string{name, "--json", "--config=" + a.config}, args(in)...))
		// A status with a problem, as any other result, is an answer.
		text := out.String()
		if errs.Len() > 0 && (code != exitOK || text == "") {
			text += errs.String()
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: out.Len() == 0}, nil, nil
	})
}
