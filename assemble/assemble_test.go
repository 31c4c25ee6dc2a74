package assemble

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/clickhouse"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func loadExample(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := Load(filepath.Join("..", "examples", name, "weir.yaml"), os.LookupEnv, config.AllowUnsetEnv())
	require.NoError(t, err)
	return c
}

func TestPlanAndSinksOfTheExamples(t *testing.T) {
	for _, name := range []string{"banana", "production"} {
		c := loadExample(t, name)
		numbers := map[string]int32{}
		_, err := Plan(c, numbers, 1)
		require.ErrorContains(t, err, "has no number")
		for i, s := range c.Services() {
			numbers[s.Name] = int32(i + 1)
		}
		plan, err := Plan(c, numbers, 1)
		require.NoError(t, err)
		require.Len(t, plan.Services, len(c.Services()))
		require.NoError(t, Check(c))
	}
}

// A file that is looked at without its environment may name sources that are not
// known. The mistake that this catches: a rehearsal in which no entity is complete.
func TestAPlanKnowsItsSources(t *testing.T) {
	for _, of := range []func(*config.Merge) *[]string{
		func(m *config.Merge) *[]string { return &m.Precedence }, func(m *config.Merge) *[]string { return &m.Required },
	} {
		c := loadExample(t, "banana")
		*of(&c.Merge) = []string{"${NOT_SET}"}
		_, err := Plan(c, nil, 1)
		require.ErrorContains(t, err, `there is no source "${NOT_SET}"`)
	}
}

// What only a sink can tell of its settings is a fault with a place.
func TestCheckAsksTheSinks(t *testing.T) {
	c := loadExample(t, "production")
	for _, s := range c.Services() {
		if k, ok := s.Delivery.Sink.(*clickhouse.Config); ok {
			k.Columns = config.Columns{{Name: "weight", Path: "weight", Type: "Strin"}}
		}
	}
	var faults *config.Faults
	require.ErrorAs(t, Check(c), &faults)
	require.NotEmpty(t, faults.List)
	require.Contains(t, faults.List[0].Problem, "Strin")
	require.NotZero(t, faults.List[0].Line)
}

// unread is a store whose revisions cannot be read.
type unread struct{}

func (unread) Revisions(context.Context, int) ([]store.Revision, error) {
	return nil, errors.New("connection reset")
}

// I13: a failed read of earlier revisions refuses neither a start nor a reload.
func TestPlanWithoutEarlierRevisions(t *testing.T) {
	var log bytes.Buffer
	c := &config.Config{Limits: config.Limits{Change: 1 << 20}}
	plan, err := PlanAfter(t.Context(), unread{}, slog.New(slog.NewTextHandler(&log, nil)), c, nil, 7)
	require.NoError(t, err)
	require.EqualValues(t, 7, plan.Revision)
	require.Contains(t, log.String(), "event=revision.history_unreadable")
}
