package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// eventually looks at a condition until it gives nil.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.FailNow(t, what, "after %s: %v", patience, err)
		}
		<-tick.C
	}
}

var addressOf = map[string]*regexp.Regexp{
	"admin":  regexp.MustCompile(`msg="serving metrics and probes" address=(\S+)`),
	"ingest": regexp.MustCompile(`msg="taking events" address=(\S+)`),
}

// address waits for the address of a listener, admin or ingest.
func (pr *process) address(listener string) string {
	pr.t.Helper()
	var found []string
	eventually(pr.t, "the "+listener+" listener", func() error {
		if found = addressOf[listener].FindStringSubmatch(pr.log.String()); found != nil {
			return nil
		}
		require.False(pr.t, pr.ended(), "the process ended: %s", tail(pr.log.String(), 60))
		return fmt.Errorf("it does not listen yet")
	})
	return found[1]
}

// says waits for a line of the log.
func (pr *process) says(text string) {
	pr.t.Helper()
	eventually(pr.t, "a line of the log", func() error {
		if strings.Contains(pr.log.String(), text) {
			return nil
		}
		require.False(pr.t, pr.ended(), "the process ended: %s", tail(pr.log.String(), 60))
		return fmt.Errorf("no %q", text)
	})
}

// get asks the operators' listener.
func (pr *process) get(path string) (status int, body string) {
	pr.t.Helper()
	resp, err := http.Get("http://" + pr.address("admin") + path)
	require.NoError(pr.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(pr.t, err)
	return resp.StatusCode, string(b)
}

// ready waits for the probe to answer as wanted.
func (pr *process) ready(want int) {
	pr.t.Helper()
	eventually(pr.t, "readiness", func() error {
		if status, body := pr.get("/readyz"); status != want {
			return fmt.Errorf("%d %s, want %d", status, body, want)
		}
		return nil
	})
}

// metric sums the series of a name whose labels have all of the given parts,
// such as service="acme/all@hook".
func (pr *process) metric(name string, labels ...string) (sum float64) {
	pr.t.Helper()
	_, body := pr.get("/metrics")
	s := bufio.NewScanner(strings.NewReader(body))
	s.Buffer(nil, 1<<20)
next:
	for s.Scan() {
		line := s.Text()
		if rest, ok := strings.CutPrefix(line, name); !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(line, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		require.NoError(pr.t, err)
		sum += v
	}
	return sum
}
