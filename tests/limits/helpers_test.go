package limits

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
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

// resident is the resident memory of a process, in bytes (proc(5), VmRSS).
func resident(t *testing.T, run *harness.Process) int64 { return memoryOf(t, run, "VmRSS:") }

// peak is the most that was ever resident, in bytes (proc(5), VmHWM).
func peak(t *testing.T, run *harness.Process) int64 { return memoryOf(t, run, "VmHWM:") }

func memoryOf(t *testing.T, run *harness.Process, field string) int64 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", run.Cmd.Process.Pid))
	require.NoError(t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), field); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return n << 10
		}
	}
	require.FailNow(t, "no "+field+" in /proc/PID/status")
	return 0
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
