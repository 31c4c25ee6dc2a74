package operate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// dying is a store under which a process dies at a call: before it, or after its effect.
type dying struct {
	operate.ForgetStore
	left  int
	after bool
}

var errDied = errors.New("died")

// do runs a call, unless the process dies before it.
func (d *dying) do(call func() error) error {
	if d.left--; d.left < 0 && (!d.after || d.left < -1) {
		return errDied
	}
	err := call()
	if d.left == -1 {
		return errDied
	}
	return err
}

func (d *dying) OpenJob(ctx context.Context, j store.Job) (o store.Job, err error) {
	return o, d.do(func() error { o, err = d.ForgetStore.OpenJob(ctx, j); return err })
}

func (d *dying) SaveJob(ctx context.Context, j *store.Job, letters ...store.DeadLetter) error {
	return d.do(func() error { return d.ForgetStore.SaveJob(ctx, j, letters...) })
}

func (d *dying) ForgetServices(ctx context.Context, services map[string]int32, a store.Audit) error {
	return d.do(func() error { return d.ForgetStore.ForgetServices(ctx, services, a) })
}

func (d *dying) ForgetStates(ctx context.Context, services []int32, after string, limit int) (last string, n int64, err error) {
	err = d.do(func() error { last, n, err = d.ForgetStore.ForgetStates(ctx, services, after, limit); return err })
	return last, n, err
}

func (d *dying) AddAudits(ctx context.Context, a []store.Audit) error {
	return d.do(func() error { return d.ForgetStore.AddAudits(ctx, a) })
}

// A customer is forgotten whole, wherever the process dies, by repeating the command.
func TestForgettingSurvivesADeathAtEveryStep(t *testing.T) {
	for _, after := range []bool{false, true} {
		for step := 0; ; step++ {
			e, _ := newEnv(t)
			s := e.Store.(operate.ForgetStore)
			var entities []string
			for i := range 1200 { // three pages
				entities = append(entities, fmt.Sprintf("B-%04d", i))
			}
			stock(t, e, "now", entities...)
			require.NoError(t, operate.PauseService(t.Context(), e.Store, aService, "me", ""))
			preview, err := operate.PreviewForget(t.Context(), s, "acme")
			require.NoError(t, err)
			require.EqualValues(t, 1200, preview.States)

			_, err = operate.Forget(t.Context(), &dying{ForgetStore: s, left: step, after: after}, "acme", "me", "they left", nil)
			died := err != nil
			if died {
				require.ErrorIs(t, err, errDied)
				_, err = operate.Forget(t.Context(), s, "acme", "me", "they left", nil)
				require.NoError(t, err)
			}
			known, err := s.KnownServices(t.Context())
			require.NoError(t, err)
			require.NotContains(t, known, aService)
			require.Contains(t, known, zService)
			a, _ := e.Plan.Service(aService)
			rows, err := s.ServiceRows(t.Context(), a.Number, "", 10)
			require.NoError(t, err)
			require.Empty(t, rows, "step %d", step)
			paused, err := operate.Paused(t.Context(), e.Store)
			require.NoError(t, err)
			require.Empty(t, paused)
			open, err := s.ListJobs(t.Context(), store.JobFilter{Kind: operate.ForgetKind, State: store.JobOpen, Limit: 10})
			require.NoError(t, err)
			if !died || after || step > 0 {
				jobs, err := s.ListJobs(t.Context(), store.JobFilter{Kind: operate.ForgetKind, State: store.JobDone, Limit: 10})
				require.NoError(t, err)
				require.NotEmpty(t, jobs)
			}
			require.Empty(t, open)
			audits, err := e.Store.Audits(t.Context(), store.AuditFilter{Action: "forget done"})
			require.NoError(t, err)
			require.NotEmpty(t, audits)
			if !died {
				require.Greater(t, step, 7)
				break
			}
		}
	}
	e, _ := newEnv(t)
	_, err := operate.PreviewForget(t.Context(), e.Store.(operate.ForgetStore), "nobody")
	require.ErrorAs(t, err, new(*operate.InvalidRequestError))
}
