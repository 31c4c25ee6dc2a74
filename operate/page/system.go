package page

import (
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/store"
)

// systemSection serves the processes and configurations.
type systemSection struct{ *Page }

// processRow is one process of the deployment.
type processRow struct {
	operate.Process
	now time.Time
}

// Class is how its state is painted.
func (r processRow) Class() string {
	switch {
	case r.Stopped:
		return "weak"
	case r.Silent(r.now):
		return levelClass(operate.LevelDown)
	}
	return levelClass(r.Level)
}

// State is its state in words.
func (r processRow) State() string {
	switch {
	case r.Stopped:
		return "stopped"
	case r.Silent(r.now):
		return "silent"
	}
	return string(r.Level)
}

// Rates returns the rates of its stages as text, empty unless the process is running.
func (r processRow) Rates() (all []string) {
	if !r.Alive(r.now) {
		return nil
	}
	for _, x := range []struct {
		role, word string
		rate       float64
	}{{"ingest", "ingested", r.Taken}, {"work", "decided", r.Decided}, {"work", "delivered", r.Delivered}} {
		if strings.Contains(r.Roles, x.role) {
			all = append(all, rateText(snapshot.Rate{Known: true, PerSecond: x.rate})+"/s "+x.word)
		}
	}
	return all
}

// revisionRow is one activated configuration.
type revisionRow struct {
	store.Revision
	Short  string // of its fingerprint
	Active bool
	Here   bool // this process works under it
}

type systemBody struct {
	Processes []processRow
	Revisions []revisionRow
	Entities  int64
	Services  int
	Sources   int
}

// maxRevisions bounds the list of configurations.
const maxRevisions = 20

// view shows the processes of the deployment and its configurations.
func (p systemSection) view(r *http.Request) (view, error) {
	var b systemBody
	all, err := operate.Processes(r.Context(), p.opt.Store)
	if err != nil {
		return view{}, err
	}
	for _, x := range all {
		b.Processes = append(b.Processes, processRow{x, p.opt.Now()})
	}
	revisions, err := p.opt.Store.Revisions(r.Context(), maxRevisions)
	if err != nil {
		return view{}, err
	}
	for i, v := range revisions {
		b.Revisions = append(b.Revisions, revisionRow{v, hex.EncodeToString(v.Fingerprint[:min(8, len(v.Fingerprint))]), i == 0, p.opt.Config().DecidesLike(v.Fingerprint)})
	}
	if b.Entities, err = p.opt.Store.CountEntities(r.Context()); err != nil {
		return view{}, err
	}
	b.Services, b.Sources = len(p.opt.Config().Services()), len(p.opt.Config().Sources)
	return view{Title: "System", Section: "/system", Body: b}, nil
}
