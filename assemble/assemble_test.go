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
	"github.com/seed-86dfc502/weir/internal/transport"
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

// A row of a table that is too large names its table and its entity.
func TestALetterOfARowNamesItsTable(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"weir.yaml": `sources: {shop: {postgres: {url: "postgres://weir@127.0.0.1/shop?sslmode=disable", tables: {public.orders: {entity: id, max_event: 1KiB}}}}}
customers: [acme.yaml]
`,
		"acme.yaml": "customer: acme\nprojections: {all: {fields: {id: id}, deliver: {out: {file: {path: out/acme.jsonl}}}}}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	c, err := Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv, config.AllowUnsetEnv())
	require.NoError(t, err)
	shape, err := ExtractorOf(c, &c.Sources[0])
	require.NoError(t, err)
	_, letter := shape.Extract(transport.NewFrame("postgres:shop_orders", "postgres-1-2-weir", 0, 1, []transport.Received{{Key: []byte("7"), Value: bytes.Repeat([]byte("x"), 2000)}}), 0)
	require.NotNil(t, letter)
	require.Equal(t, "7", letter.Entity)
	require.Equal(t, "the row of table public.orders is larger than the limit of 1024 bytes", letter.Reason)
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
