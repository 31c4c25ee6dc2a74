package limits

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// logHook is the delivery of every change to a receiver: no pending change
// is left out for a newer one.
func logHook(t *testing.T, r *harness.Receiver) string {
	return harness.ReplaceOnce(t, harness.PatientHookSink(r), "retry:", "kind: log, retry:")
}

// lineCounter counts the lines of a file that grows, all or those with a text.
type lineCounter struct {
	path   string
	with   string
	offset int64
	lines  int
}

func (l *lineCounter) count(t *testing.T) int {
	f, err := os.Open(l.path)
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Seek(l.offset, io.SeekStart)
	require.NoError(t, err)
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is still being written
		}
		l.offset += int64(len(line))
		if bytes.Contains(line, []byte(l.with)) {
			l.lines++
		}
	}
	return l.lines
}

// large makes an event of exactly that many bytes, no two alike. A compressor
// finds little in it.
func large(n int, entity string, bytes int) string {
	random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), 1})
	head := fmt.Sprintf(`{"event":"l%d","id":%q,"state":"%d","chunks":[`, n, entity, n)
	var b strings.Builder
	b.Grow(bytes)
	b.WriteString(head)
	noise := make([]byte, 500)
	for bytes-b.Len() > 3000 {
		_, _ = random.Read(noise) // it cannot fail
		fmt.Fprintf(&b, `"%s",`, hex.EncodeToString(noise))
	}
	fmt.Fprintf(&b, `"%s"]}`, strings.Repeat("x", bytes-b.Len()-4))
	return b.String()
}
