package page

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/operate/explain"
)

// reachTime bounds how long the inbox is waited for; without it the rest is told.
const reachTime = 20 * time.Second

type explainBody struct {
	Entity, Service string
	Payload         bool
	Services        []string
	Asked           bool
	X               *explain.Explanation
	Versions        []version // of its last events, the latest first
}

// explain shows one entity's story.
func (p *Page) explain(w http.ResponseWriter, r *http.Request, who *session) {
	q := r.URL.Query()
	b := explainBody{Entity: q.Get("entity"), Service: q.Get("service"), Payload: true}
	for _, s := range p.opt.Config().Services() {
		b.Services = append(b.Services, s.Name)
	}
	all := p.opt.Config().Checks
	for i := range all {
		b.Services = append(b.Services, all[i].Service())
	}
	if b.Entity != "" {
		b.Asked = true
		var err error
		b.X, err = p.tell(r.Context(), explain.Input{
			Config: p.opt.Config(), Store: p.opt.Store, Entity: b.Entity, Service: b.Service, Payload: b.Payload,
		})
		if errors.Is(err, explain.ErrUnknownService) {
			p.fail(w, r, http.StatusNotFound, "There is no such service.")
			return
		}
		if err != nil {
			p.trouble(w, r, err)
			return
		}
		b.Versions = versions(b.X)
	}
	p.show(w, http.StatusOK, "explain", view{Title: "Explain an entity", Section: "/entities", Who: who, Body: b})
}

// tell explains with the inbox if it can be reached in time, else without.
func (p *Page) tell(ctx context.Context, in explain.Input) (*explain.Explanation, error) {
	reaching, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	env, err := p.opt.Tools(reaching)
	if err == nil {
		reached := in
		reached.Inbox = explain.Kafka{Inbox: env.Inbox, Log: env.Log}
		x, e := explain.Explain(reaching, reached)
		if e == nil || reaching.Err() == nil || ctx.Err() != nil {
			return x, e
		}
		err = e
	}
	in.NoInbox = err.Error()
	return explain.Explain(ctx, in)
}
