package decide

import (
	"bytes"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Preview returns the effect of a control record on an entity with its dam states,
// without writing it: which services would be sent something and which be held
// back. It is the code that decides. The version of the changes is made up. It may
// be called concurrently.
func (p *Plan) Preview(e store.Entity, c change.Control) (Step, error) {
	r := &record{Record: change.Record{Entity: e.ID, Control: &c}, version: e.Version + 1, at: time.Unix(0, 0).UTC()}
	b := newBatch(p, []*record{r}, unbounded, noCache)
	b.single = true
	v, err := decideBatch(b, store.Loaded{Entities: []store.Entity{e}})
	if err != nil {
		return Step{}, err
	}
	return v.step(), nil
}

// Service returns a service of the plan by its name.
func (p *Plan) Service(name string) (Service, bool) {
	i, ok := p.byName[name]
	if !ok {
		return Service{}, false
	}
	return p.Services[i], true
}

// Current reports whether an entity was last evaluated under this plan, for all its services.
func (p *Plan) Current(e store.Entity) bool { return bytes.Equal(e.Fingerprint, p.stamp) }
