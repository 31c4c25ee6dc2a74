package operate_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/terminal"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

func TestDeliveries(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Migrate(context.Background()))
	numbers, err := s.Services(t.Context(), []string{"acme/all@hook", "zest/all@hook"})
	require.NoError(t, err)
	start := time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)
	answers := []string{"", "yes", "caf\xc3", "\xff\x00<b>", "€"[:2], "ok€"}
	shown := []string{"", "yes", "caf", `"�\x00<b>"`, "", "ok€"}
	var attempts []store.Attempt
	for i, a := range answers {
		attempts = append(attempts, store.Attempt{
			Service: numbers["acme/all@hook"], Entity: "B", At: start.Add(time.Duration(i) * time.Second), Version: change.NewVersion(2, int64(i)),
			Outcome: "delivered", Status: 200, Answer: []byte(a), Took: 5 * time.Millisecond,
		})
	}
	require.NoError(t, s.AddAttempts(t.Context(), attempts))
	all, err := operate.Deliveries(t.Context(), s, operate.DeliveryQuery{Entity: "B"})
	require.NoError(t, err)
	require.Len(t, all, len(answers))
	require.Equal(t, operate.Delivery{At: start.Add(time.Second), Service: "acme/all@hook", Entity: "B", Version: "2:1", Outcome: "delivered", Status: 200, Answer: "yes", Millis: 5}, all[1])
	for i, d := range all {
		require.Equal(t, shown[i], terminal.Visible(d.Answer), "%q", answers[i])
	}
	newest, err := operate.Deliveries(t.Context(), s, operate.DeliveryQuery{Service: "acme/all@hook", Limit: 2, Until: start.Add(4 * time.Second)})
	require.NoError(t, err)
	require.Equal(t, all[2:4], newest)
	none, err := operate.Deliveries(t.Context(), s, operate.DeliveryQuery{Service: "zest/all@hook"})
	require.NoError(t, err)
	require.Empty(t, none)
	_, err = operate.Deliveries(t.Context(), s, operate.DeliveryQuery{Service: "zest/all@hok"})
	require.ErrorAs(t, err, new(*operate.InvalidRequestError))
}
