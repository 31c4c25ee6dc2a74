package servicelabel_test

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/internal/servicelabel"
	"github.com/stretchr/testify/require"
)

func TestLabelsAreBounded(t *testing.T) {
	l := servicelabel.New(2)
	for _, c := range [][2]string{
		{"a/x@s", "a/x@s"}, {"b/x@s", "b/x@s"}, {"a/y@s", "a/*"}, {"c/x@s", "c/*"}, {"d/x@s", "*"}, {"c/y@s", "c/*"}, {"a/x@s", "a/x@s"}, {"d/x@s", "*"},
	} {
		require.Equal(t, c[1], l.Of(c[0]), c[0])
	}
	seen := map[string]bool{}
	for i := range 1000 {
		seen[l.Of(fmt.Sprintf("c%d/x@s", i))] = true
	}
	require.Len(t, seen, 1, "customers beyond the bound share a label")
	var none *servicelabel.Labels
	require.Equal(t, "e/x@s", none.Of("e/x@s"))
}
