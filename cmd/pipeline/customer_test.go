package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A customer's file is written, checked and planned; one that would have faults is not left.
func TestCustomerAdd(t *testing.T) {
	dir, main := banana(t)
	file := filepath.Join(dir, "customers", "lime.yaml")
	add := func(more ...string) (int, string, string) {
		return call(t, append([]string{"add", "customer", "lime", "-c", main}, more...)...)
	}
	status, _, errs := add("--sees", "id", "--when", "doc.id >")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "lime.yaml:4:")
	require.NoFileExists(t, file)

	status, out, errs := add("--sees", "id,level=ripeness_level")
	require.Zero(t, status, errs)
	require.Contains(t, out, "what it would get is not known: ")
	require.FileExists(t, file)
	status, _, errs = add("--sees", "id")
	require.Equal(t, exitFailed, status)
	require.Contains(t, errs, "is there already")

	require.NoError(t, os.Remove(file))
	status, _, errs = call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	status, out, errs = add("--sees", "id,level=ripeness_level", "--to", "webhook: {url: 'http://127.0.0.1/', secret: whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}")
	require.Zero(t, status, errs)
	require.Contains(t, out, "lime/first@webhook    new")
	require.NotContains(t, out, "zest/")
	status, _, errs = call(t, "add", "customer", "../x", "-c", main, "--sees", "id")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "that is no name")
}

// Retracting needs a customer that is leaving, forgetting one that is gone: else its next
// event would send the entity again, or the state would be in use.
func TestCustomerRemoveNeedsItsConfiguration(t *testing.T) {
	dir, main := banana(t)
	status, _, errs := call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	file := filepath.Join(dir, "customers", "zest.yaml")
	remove := func(more ...string) (int, string, string) {
		return call(t, append([]string{"customer", "remove", "zest", "-c", main}, more...)...)
	}
	for want, step := range map[string][]string{
		"zest is not leaving":         {"--retract"},
		"its state is in use\nhint: ": {"--forget", "--yes"},
		"[retract forget]":            {},
	} {
		status, _, errs := remove(step...)
		require.NotZero(t, status)
		require.Contains(t, errs, want)
	}
	require.NoError(t, os.Remove(file))
	for want, step := range map[string][]string{
		"this is not the active": {"--forget", "--yes"}, "has no customer zest: nothing can be sent": {"--retract"},
	} {
		status, _, errs := remove(step...)
		require.Equal(t, exitFailed, status)
		require.Contains(t, errs, want)
	}
	status, _, errs = call(t, "run", "-c", main, "--until-idle")
	require.Zero(t, status, errs)
	status, _, errs = remove("--forget")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "there is no terminal to ask")
	status, out, errs := remove("--forget", "--yes")
	require.Zero(t, status, errs)
	require.Contains(t, out, "states of 1 service forgotten")
	status, _, errs = remove("--forget", "--yes")
	require.Equal(t, exitUsage, status)
	require.Contains(t, errs, "the store knows no service of customer zest")
}

// doing returns a function that runs a command of a configuration, which must succeed, and returns
// its results.
func doing(t *testing.T, main string) func(args ...string) string {
	return func(args ...string) string {
		t.Helper()
		status, out, errs := call(t, append(args, "-c", main)...)
		require.Zero(t, status, errs)
		return out
	}
}

// A customer that was forgotten and whose file comes back is sent everything, though neither the
// configuration is another one nor any entity changed: by a replay of outdated entities, and by
// the next event of an entity, also by one that its view does not show.
func TestAForgottenCustomerComesBack(t *testing.T) {
	for _, by := range []string{"replay", "event"} {
		t.Run(by, func(t *testing.T) {
			dir, main := banana(t)
			does := doing(t, main)
			sent := func() int {
				text, err := os.ReadFile(filepath.Join(dir, "out", "zest_catalogue.jsonl"))
				require.NoError(t, err)
				return strings.Count(string(text), `"op":"upsert"`)
			}
			file, away := filepath.Join(dir, "customers", "zest.yaml"), filepath.Join(dir, "zest.away")
			does("run", "--until-idle")
			first := sent()
			require.NoError(t, os.Rename(file, away))
			does("run", "--until-idle")
			does("customer", "remove", "zest", "--forget", "--yes")
			require.NoError(t, os.Rename(away, file))
			does("run", "--until-idle", "--activate")
			require.Equal(t, first, sent())
			if by == "replay" {
				does("replay", "--outdated", "--wait")
			} else {
				events, err := os.OpenFile(filepath.Join(dir, "events", "lab.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
				require.NoError(t, err)
				_, err = events.WriteString(`{"id":"B-007","sugar":99}` + "\n")
				require.NoError(t, errors.Join(err, events.Close()))
			}
			does("run", "--until-idle")
			require.Equal(t, first+1, sent(), "the other entity is deleted")
			does("replay", "--outdated", "--wait")
			does("run", "--until-idle")
			require.Equal(t, first+1, sent(), "once")
		})
	}
}

// A renamed customer is forgotten by either name, when no file has its names any more.
func TestARenamedCustomerIsForgottenByItsName(t *testing.T) {
	for _, name := range []string{"lemon", "zest"} {
		dir, main := banana(t)
		does := doing(t, main)
		does("run", "--until-idle")
		file := filepath.Join(dir, "customers", "zest.yaml")
		change(t, file, "customer: zest\n", "customer: lemon\nwas: zest\n")
		does("run", "--until-idle")
		require.NoError(t, os.Remove(file))
		does("run", "--until-idle")
		require.Contains(t, does("customer", "remove", name, "--forget", "--plan"), "zest/catalogue@archive")
		require.Contains(t, does("customer", "remove", name, "--forget", "--yes"), "of 1 service forgotten")
		for _, again := range []string{"lemon", "zest"} {
			status, _, errs := call(t, "customer", "remove", again, "--forget", "--yes", "-c", main)
			require.Equal(t, exitUsage, status)
			require.Contains(t, errs, "the store knows no service of customer "+again)
		}
	}
}
