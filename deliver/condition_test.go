package deliver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A byte that is no UTF-8, as a target's answer may have one, costs itself and not what
// is behind it.
func TestACutLeavesOutOnlyWhatIsNoText(t *testing.T) {
	long := "na\xefve " + strings.Repeat("x", 400)
	require.Equal(t, "nave "+strings.Repeat("x", 294), cutTo(long, 300))
	require.Equal(t, "x", cutTo("xé", 2), "no half character")
}
