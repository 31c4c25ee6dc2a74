package limits

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// slowly passes requests to a receiver when hurry is closed.
type slowly struct {
	receiver *harness.Receiver
	hurry    chan struct{}
	asked    atomic.Int64
	answered atomic.Int64
}

func (s *slowly) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	select {
	case <-s.hurry:
	case <-r.Context().Done():
		return
	}
	s.receiver.ServeHTTP(w, r)
	s.answered.Add(1)
}

// I7: a customer that takes minutes for a request does not hold up the others:
// they get everything while it has not answered its first one.
func TestSlowCustomerHoldsUpNobody(t *testing.T) {
	const entities, rounds = 50, 40
	slow := &slowly{receiver: harness.NewReceiver(t), hurry: make(chan struct{})}
	server := httptest.NewServer(slow)
	t.Cleanup(server.Close)
	others := []*harness.Receiver{harness.NewReceiver(t), harness.NewReceiver(t)}
	sink := harness.ReplaceOnce(t, harness.PatientHookSink(slow.receiver), "timeout: 5m", "timeout: 5m, concurrency: 1")
	sink = harness.ReplaceOnce(t, sink, slow.receiver.URL(), server.URL)
	p := harness.Simple(t, "", map[string]string{
		"slow": sink, "hook0": logHook(t, others[0]), "hook1": logHook(t, others[1]), "file": harness.FileSink("file"),
	})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Event(0, "E0", "first"))
	harness.Eventually(t, "the slow customer has a request", func() error { return harness.Want(slow.asked.Load(), 1) })
	p.Append("events.jsonl", harness.Many(entities, 1, 1+rounds))
	harness.Eventually(t, "the others have everything", func() error {
		return errors.Join(
			harness.Want(len(others[0].Received()), 1+entities*rounds), harness.Want(len(others[1].Received()), 1+entities*rounds),
			harness.Want(len(p.Whole("out/file.jsonl")), 1+entities*rounds))
	})
	require.EqualValues(t, 1, slow.asked.Load())
	require.Zero(t, slow.answered.Load(), "the others waited for the slow customer")

	close(slow.hurry)
	harness.Eventually(t, "the slow customer gets what waited", func() error {
		return harness.Settled(slow.receiver.Received(), entities, fmt.Sprint("r", rounds))
	})
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	want := p.Expected("slow", "hook0", "hook1", "file")
	require.NoError(t, oracle.CheckLog(want, "file/all@out", p.Records("out/file.jsonl")))
	for i, r := range others {
		require.NoError(t, oracle.CheckLog(want, fmt.Sprintf("hook%d/all@out", i), r.Received()))
	}
	require.NoError(t, oracle.CheckAttempts(want, "slow/all@out", slow.receiver.Received()))
	require.NoError(t, oracle.CheckState(want, "slow/all@out", oracle.Newest(slow.receiver.Received())))
}
