package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/commands.md")

// The reference of commands, a page of the site, is made from their help texts. Run the test with
// -update after a change of a command.
func TestReferenceIsUpToDate(t *testing.T) {
	a := &app{console: console{out: io.Discard, err: io.Discard}, env: func(string) (string, bool) { return "", false }}
	root := newRootCommand(a)
	root.InitDefaultHelpCmd()
	var b bytes.Buffer
	b.WriteString("# Commands\n\nWhat `weir --help` and the help of each command say. `weir completion` prints completions for shells: `source <(weir completion bash)`. [Operators' commands](operator-commands.md) tells when to use what.\n")
	write(&b, root)
	path := filepath.Join("testdata", "commands.md")
	if *update {
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(text), "testdata/commands.md is out of date: go test ./cmd/pipeline -run Reference -update")
}

func write(b *bytes.Buffer, c *cobra.Command) {
	if c.Name() == "help" || c.Name() == "completion" {
		return
	}
	c.InitDefaultHelpFlag()
	does := c.Long
	if does == "" {
		does = c.Short
	}
	usage := strings.TrimSpace(c.UsageString())
	fmt.Fprintf(b, "\n## %s\n\n```text\n%s\n\n%s\n```\n", c.CommandPath(), strings.TrimSpace(does), usage)
	for _, sub := range c.Commands() {
		write(b, sub)
	}
}
