package main

import (
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// An assistant gets the JSON of the commands that only read, and no others.
func TestMCP(t *testing.T) {
	_, main := banana(t)
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)

	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	served := make(chan int, 1)
	go func() {
		a := &app{console: console{in: fromClient, out: toClient, err: io.Discard}, env: func(string) (string, bool) { return "", false }}
		served <- a.execute(t.Context(), []string{"mcp", "-c", main})
	}()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, nil)
	require.NoError(t, err)
	tools, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	var names []string
	for _, tool := range tools.Tools {
		require.True(t, tool.Annotations.ReadOnlyHint, tool.Name)
		names = append(names, tool.Name)
	}
	require.ElementsMatch(t, []string{"deliveries", "doctor", "explain", "noise", "plan", "status", "validate"}, names)
	for _, x := range []struct {
		tool string
		in   map[string]any
		want string
	}{
		{"status", nil, `"unasked"`}, {"doctor", nil, `"what"`}, {"validate", nil, `"services"`}, {"plan", nil, `"services"`}, {"noise", nil, `"registry"`},
		{"explain", map[string]any{"entity": "B-007", "service": "acme/ripeness@archive"}, `"B-007"`},
		{"deliveries", map[string]any{"limit": 3}, `[`},
	} {
		result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: x.tool, Arguments: x.in})
		require.NoError(t, err, x.tool)
		require.Len(t, result.Content, 1)
		text := result.Content[0].(*mcp.TextContent).Text
		require.False(t, result.IsError, "%s: %s", x.tool, text)
		require.Contains(t, text, x.want, x.tool)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "explain", Arguments: map[string]any{"entity": "--payload", "service": "no such"}})
	require.NoError(t, err)
	require.True(t, result.IsError)
	require.NoError(t, session.Close())
	require.NoError(t, toServer.Close())
	require.Zero(t, <-served)
}
