//go:build verify

package imports

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file of 300 MB is imported beside the flow, which decides and delivers it meanwhile,
// within 200 MiB of memory. The file's size does not matter: nothing of it is stored.
func TestALargeImportBesideTheFlow(t *testing.T) {
	const size, most = 300_000_000, 200 << 20
	p := newWorld(t, embedded)
	out, err := os.Create(p.Path("large.jsonl"))
	require.NoError(t, err)
	w := bufio.NewWriter(out)
	pad := strings.Repeat("x", 900)
	rows := 0
	for n := 0; n < size; rows++ {
		k, err := fmt.Fprintf(w, `{"event":"%d","id":"e-%d","state":"%d","pad":%q}`+"\n", rows, rows%1000, rows/10_000, pad)
		require.NoError(t, err)
		n += k
	}
	require.NoError(t, w.Flush())
	require.NoError(t, out.Close())
	pr := p.Start("run")
	pr.Ready(200)
	j := job(t, p.Start("import --json --source lab", p.Path("large.jsonl")).Ok())
	require.Equal(t, "done", j.State)
	require.EqualValues(t, rows, j.Accepted)
	peak := pr.Memory("VmHWM")
	pr.Terminate()
	require.Zero(t, pr.Wait())
	t.Logf("%d rows, %d bytes: peak %d MiB", rows, j.Bytes, peak>>20)
	require.Less(t, peak, int64(most))
}
