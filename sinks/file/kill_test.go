package file

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// writerEnv makes this test binary a process that writes a file without end.
const writerEnv = "WEIR_TEST_FILE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		fmt.Fprintln(os.Stderr, writeForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeForEver starts over from the first change, as if nothing had been
// confirmed, and prints how many changes are confirmed after each Write.
func writeForEver(path string) error {
	s := New(path)
	if err := s.Open(context.Background()); err != nil {
		return err
	}
	for n := 0; ; n += 7 {
		if err := s.Write(context.Background(), upserts(n, n+7)); err != nil {
			return err
		}
		fmt.Println(n + 7)
	}
}

// TestKilledWriter kills a writing process again and again (I1, I2): all
// confirmed changes are in the file, none twice or out of order.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	most := 0
	for round := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		confirmed := 0
		for sc := bufio.NewScanner(out); sc.Scan(); {
			_, err := fmt.Sscan(sc.Text(), &confirmed)
			require.NoError(t, err)
			if confirmed >= most+20+13*round { // some Writes into what is new
				require.NoError(t, cmd.Process.Kill())
				break
			}
		}
		require.Error(t, cmd.Wait(), "it was killed")
		most = max(most, confirmed)
		s := openSink(t, path)
		require.NoError(t, s.Close())
		log := (&reader{path: path}).log(t)
		require.GreaterOrEqual(t, len(log), most, "a confirmed change is missing")
		for n, c := range log {
			require.Equal(t, upsert(n).Key, c.Key, "line %d", n)
		}
	}
}
