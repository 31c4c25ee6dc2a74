package faults

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m) }

// fault is one seeded fault and what status says of it.
type fault struct {
	name string // of the sink or source that has it
	yaml string // the sink or source
	what string // the object; default: the service of the sink
	why  string // pattern of the cause
	do   string // pattern of the remedy
	// ends says that no attempt follows by itself: the remedy is a command.
	ends bool
}

// status asks for the status of a project.
func status(t testing.TB, p harness.Project) operate.Status {
	t.Helper()
	asked := p.Start("status --json")
	require.NotEqual(t, 2, asked.Wait(), "%s", &asked.Out)
	var s operate.Status
	require.NoError(t, json.Unmarshal(asked.Out.Bytes(), &s), "%s%s", asked.Out.String(), asked.Log.String())
	return s
}

// said compares a status with the wanted line of the fault.
func (f *fault) said(s operate.Status) error {
	at := slices.IndexFunc(s.Items, func(i operate.Item) bool {
		return i.What == f.what || strings.HasPrefix(i.What, f.what+", entity ")
	})
	if at < 0 {
		return fmt.Errorf("%s: not named: %+v", f.what, slices.DeleteFunc(slices.Clone(s.Items), func(i operate.Item) bool { return !strings.Contains(i.What, f.name) }))
	}
	i := s.Items[at]
	wrong := func(text string) error { return fmt.Errorf("%s: %s: %+v", f.what, text, i) }
	switch {
	case i.Level != operate.LevelDegraded && i.Level != operate.LevelDown:
		return wrong("its level is " + string(i.Level))
	case !regexp.MustCompile(f.why).MatchString(i.Why):
		return wrong("its cause is not like " + f.why)
	case !regexp.MustCompile(f.do).MatchString(i.Do):
		return wrong("its remedy is not like " + f.do)
	case i.Since.IsZero():
		return wrong("no since")
	case !f.ends && i.NextTry.IsZero():
		return wrong("no next try")
	}
	return nil
}

// requireSaid waits until the status has the wanted lines of all faults.
func requireSaid(t *testing.T, p harness.Project, faults []fault) {
	t.Helper()
	var errs []error
	harness.Eventually(t, fmt.Sprint(len(faults), " faults"), func() error {
		s := status(t, p)
		require.NotEqual(t, operate.LevelOK, s.Level)
		errs = errs[:0]
		for i := range faults {
			if err := faults[i].said(s); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) > 0 {
			text := ""
			for _, err := range errs {
				text += "\n" + err.Error()
			}
			return fmt.Errorf("%d of %d are wrong:%s", len(errs), len(faults), text)
		}
		return nil
	})
}
