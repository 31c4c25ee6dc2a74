package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// setupTimeout bounds every exchange with a server that prepares or cleans up; it fails a test that
// would otherwise hang on a lock which another session of that test still holds.
const setupTimeout = 2 * time.Minute

// lookup returns the value of a WEIR_TEST_… variable.
func lookup(t testing.TB, variable string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server")
	}
	if value := os.Getenv(variable); value != "" {
		return value
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	environment, err := os.ReadFile(filepath.Join(root, ".run", "env"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	value := valueIn(string(environment), variable)
	if value == "" {
		t.Fatalf("%s is not set and no test server is running: run `make servers`, then "+
			"`eval \"$(scripts/servers env)\"`, or use `make test`", variable)
	}
	return value
}

// valueIn finds the variable among lines of the form export NAME='value'.
func valueIn(environment, variable string) string {
	for line := range strings.Lines(environment) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if name == variable {
			return strings.Trim(value, "'")
		}
	}
	return ""
}

// Root returns the absolute path of the repository: the nearest folder at or above the working
// directory that holds go.mod. The working directory of a test is its package.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("no go.mod at or above the working directory")
		}
		folder = parent
	}
}

// uniqueName returns a name that no other test has; it is a valid identifier in every server.
func uniqueName() string { return "weir_test_" + strings.ToLower(rand.Text()[:16]) }

// setup runs f, which prepares something, and fails the test when f fails.
func setup(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setupTimeout)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

// cleanup runs f after the test. Its failure fails the test: the rest is most often a session
// or a consumer that the test forgot to close.
func cleanup(t testing.TB, what string, f func(context.Context) error) {
	t.Cleanup(func() {
		// The test's own context ends before its cleanup.
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		if err := f(ctx); err != nil {
			t.Error(fmt.Errorf("%s: %w", what, err))
		}
	})
}
