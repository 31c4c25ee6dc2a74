package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The mistake that this catches: a statement was changed, and the old one runs.
func TestTheStatementsAreUpToDate(t *testing.T) {
	want, err := generate("../..")
	require.NoError(t, err)
	have, err := os.ReadFile("../../statements.go")
	require.NoError(t, err)
	assert.Equal(t, string(want), string(have), "go generate ./store/shared")
}
