package page

import (
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// systemSection serves the processes and configurations.
type systemSection struct{ *Page }

// processRow is one process of the deployment.
type processRow struct {
	operate.Process
	Silent bool // it told nothing of itself for a while, and did not say that it stops
}

// Class is how its state is painted.
func (r processRow) Class() string {
	switch {
	case r.Stopped:
		return "weak"
	case r.Silent:
		return levelClass(operate.LevelDown)
	}
	return levelClass(r.Level)
}

// State is its state in words.
func (r processRow) State() string {
	switch {
	case r.Stopped:
		return "stopped"
	case r.Silent:
		return "silent"
	}
	return string(r.Level)
}

// Runs reports whether it runs a stage.
func (r processRow) Runs(stage string) bool { return strings.Contains(r.Roles, stage) }

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
func (p systemSection) view(w http.ResponseWriter, r *http.Request, who *session) {
	var b systemBody
	all, err := operate.Processes(r.Context(), p.opt.Store)
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	for _, x := range all {
		b.Processes = append(b.Processes, processRow{x, x.Silent(p.opt.Now())})
	}
	revisions, err := p.opt.Store.Revisions(r.Context(), maxRevisions)
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	for i, v := range revisions {
		b.Revisions = append(b.Revisions, revisionRow{v, hex.EncodeToString(v.Fingerprint[:min(8, len(v.Fingerprint))]), i == 0, p.opt.Config().DecidesLike(v.Fingerprint)})
	}
	if b.Entities, err = p.opt.Store.CountEntities(r.Context()); err != nil {
		p.renderError(w, r, err)
		return
	}
	b.Services, b.Sources = len(p.opt.Config().Services()), len(p.opt.Config().Sources)
	p.show(w, http.StatusOK, "system", view{Title: "System", Section: "/system", Session: who, Body: b})
}
