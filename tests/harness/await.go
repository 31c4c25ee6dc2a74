package harness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Eventually checks a condition until it returns nil.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	Within(t, Patience, Poll, what, f)
}

// Within is Eventually with other times: how long, and how often a condition is looked at.
func Within(t testing.TB, patience, poll time.Duration, what string, f func() error) {
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

// addressOf finds the address of a listener in a log.
var addressOf = map[string]*regexp.Regexp{
	"admin":  regexp.MustCompile(`event=admin.listening address=(\S+)`),
	"ingest": regexp.MustCompile(`event=api.listening address=(\S+)`),
}

// Address waits for the address of a listener, admin or ingest.
func (pr *Process) Address(listener string) string {
	pr.T.Helper()
	var found []string
	Eventually(pr.T, "the "+listener+" listener", func() error {
		ended := pr.Ended() // before the log: the last lines come before the end
		if found = addressOf[listener].FindStringSubmatch(pr.lines()); found != nil {
			return nil
		}
		require.False(pr.T, ended, "the process ended: %s", Tail(pr.Log.String(), 60))
		return fmt.Errorf("it does not listen yet")
	})
	return found[1]
}

// Says waits for a line of the log.
func (pr *Process) Says(text string) {
	pr.T.Helper()
	pr.SaysTimes(text, 1)
}

// SaysTimes waits until so many lines of the log, or more, have a text: for what
// the process says once for each of several causes.
func (pr *Process) SaysTimes(text string, times int) {
	pr.T.Helper()
	Eventually(pr.T, "a line of the log", func() error {
		ended := pr.Ended() // before the log: the last lines come before the end
		said := strings.Count(pr.lines(), text)
		if said >= times {
			return nil
		}
		require.False(pr.T, ended, "the process ended: %s", Tail(pr.Log.String(), 60))
		return fmt.Errorf("%q was said %d times, want %d", text, said, times)
	})
}

// lines are the whole lines of the log: output behind an awaited line
// may not be there yet.
func (pr *Process) lines() string {
	log := pr.Log.String()
	return log[:strings.LastIndexByte(log, '\n')+1]
}

// Get asks the operators' listener.
func (pr *Process) Get(path string) (status int, body string) {
	pr.T.Helper()
	resp, err := http.Get("http://" + pr.Address("admin") + path)
	require.NoError(pr.T, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(pr.T, err)
	return resp.StatusCode, string(b)
}

// Ready waits for the probe to answer as wanted.
func (pr *Process) Ready(want int) {
	pr.T.Helper()
	Eventually(pr.T, "readiness", func() error {
		if status, body := pr.Get("/readyz"); status != want {
			return fmt.Errorf("%d %s, want %d", status, body, want)
		}
		return nil
	})
}

// Metric sums the series of a name whose labels have all of the given parts,
// such as service="acme/all@hook".
func (pr *Process) Metric(name string, labels ...string) (sum float64) {
	pr.T.Helper()
	_, body := pr.Get("/metrics")
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
		require.NoError(pr.T, err)
		sum += v
	}
	return sum
}

// Memory returns a field of proc(5) status in bytes: VmRSS is the resident memory, VmHWM its peak.
func (pr *Process) Memory(field string) int64 {
	pr.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pr.Cmd.Process.Pid))
	require.NoError(pr.T, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(pr.T, err)
			return n << 10
		}
	}
	require.FailNow(pr.T, "no "+field)
	return 0
}

// ErrNotYet is for conditions that have nothing more to say.
var ErrNotYet = errors.New("not yet")
