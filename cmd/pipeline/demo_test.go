package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// log is the output of a command, for a concurrent reader.
type log struct {
	mu   sync.Mutex
	text []byte
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}

// The stream continues, the page and commands reach it; at the end nothing is left.
func TestDemo(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var errs log
	a := &app{console: console{out: io.Discard, err: &errs}, env: func(string) (string, bool) { return "", false }}
	ended := make(chan int, 1)
	go func() {
		ended <- a.execute(ctx, []string{"demo", "--rate", "200", "--entities", "50", "--customers", "2"})
	}()
	size := func() (n int64) {
		outputs, _ := filepath.Glob(filepath.Join(folder, "weir-demo-*", "out", "*.jsonl"))
		for _, name := range outputs {
			if info, err := os.Stat(name); err == nil {
				n += info.Size()
			}
		}
		return n
	}
	grown := func(from int64) {
		require.Eventually(t, func() bool { return size() > from }, 3*time.Minute, 20*time.Millisecond, errs.String())
	}
	grown(0)
	grown(size())
	page := regexp.MustCompile(`http://\S+/`).FindString(errs.String())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(page)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)
	configs, err := filepath.Glob(filepath.Join(folder, "weir-demo-*", "weir.yaml"))
	require.NoError(t, err)
	status, out, said := call(t, "explain", "B-000000", "-c", configs[0])
	require.Zero(t, status, "%s%s", out, said)

	interrupt()
	require.Zero(t, <-ended, errs.String())
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
	status, _, said = call(t, "demo", "--rate", "0")
	require.Equal(t, exitUsage, status)
	require.Contains(t, said, "--rate")
}
