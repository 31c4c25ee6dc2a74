package main

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The list fits the code as it is. Whether the tests find the faults is what make
// mutants shows.
func TestTheListFitsTheCode(t *testing.T) {
	require.NoError(t, errors.Join(check("../..", mutants)...))
	require.GreaterOrEqual(t, len(mutants), 60)
}

// What does not fit is named.
func TestWhatDoesNotFitIsSaid(t *testing.T) {
	good := mutants[0]
	gone, twice, untested, empty := good, good, good, good
	gone.file, gone.rule = "decide/none.go", "a"
	twice.old, twice.rule = "return", "b"
	untested.test, untested.rule = "TestNone", "c"
	empty.new, empty.rule = empty.old, "d"
	faults := check("../..", []mutant{good, gone, twice, untested, empty, good})
	require.Len(t, faults, 5)
	for i, says := range []string{"the file is gone", "times, not once", "has no test TestNone", "it changes nothing", "two of this name"} {
		require.ErrorContains(t, faults[i], says)
	}
}
