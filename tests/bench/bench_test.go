package main

import (
	"io"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/stretchr/testify/require"
)

// Every contender must do the work: those that write Weir's encoding get its
// digests, and all see the same documents as equal.
func TestContendersAgree(t *testing.T) {
	for _, form := range corpora {
		sorted, shuffled := form.sample(false), form.sample(true)
		for _, c := range contenders() {
			seen := map[[32]byte]bool{}
			for i := range sorted {
				want, err := canonicaltree.Sum(sorted[i], canonicaltree.Literal)
				require.NoError(t, err)
				a, err := c.run(sorted[i])
				require.NoError(t, err, "%s of %s", c.name, form.name)
				b, err := c.run(shuffled[i])
				require.NoError(t, err)
				if c.same {
					require.Equal(t, [32]byte(want), a, "%s of %s", c.name, form.name)
				}
				if c.name == "SHA-256 alone" {
					continue
				}
				require.Equal(t, a, b, "%s of %s", c.name, form.name)
				seen[a] = true
			}
			if c.name != "scan alone" && c.name != "SHA-256 alone" {
				require.GreaterOrEqual(t, len(seen), 10, "%s of %s", c.name, form.name)
			}
		}
	}
}

func TestScanSortsMembers(t *testing.T) {
	for _, form := range corpora {
		sorted, shuffled := form.sample(false), form.sample(true)
		for i := range sorted {
			var a, b scanner
			_, err := a.run(sorted[i])
			require.NoError(t, err)
			_, err = b.run(shuffled[i])
			require.NoError(t, err)
			require.Equal(t, string(a.out), string(b.out), form.name)
		}
	}
}

func TestProjectorsAgree(t *testing.T) {
	ps, err := projectors()
	require.NoError(t, err)
	for _, doc := range corpora[1].sample(true) {
		var want [][]byte
		for _, p := range ps {
			require.NoError(t, p.run(doc))
			if p.outputs == nil {
				continue
			}
			if want == nil {
				want = p.outputs()
			}
			for i, got := range p.outputs() {
				require.JSONEq(t, string(want[i]), string(got), p.name)
			}
		}
	}
}

func TestReport(t *testing.T) {
	require.NoError(t, report(io.Discard, "", 1, time.Microsecond))
}
