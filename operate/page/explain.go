package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate/explain"
)

// reachTime bounds the wait for the inbox. Without it the rest is explained.
const reachTime = 20 * time.Second

type explainBody struct {
	Entity, Service string
	Services        []string
	X               *explain.Explanation
	Judged, Folded  []explain.Service // what asks for somebody first
	Versions        []version         // of its last events, the latest first
}

// maxJudged is how many services are shown unfolded.
const maxJudged = 12

// urgency orders verdicts: problems, changes under way, outcomes of the last event, and services
// that it did not concern.
var urgency = []explain.Verdict{ //nolint:gochecknoglobals // never written
	explain.Undecidable, explain.Refused, explain.Unknown, explain.NotYet, explain.Queued, explain.Paced, explain.Sent, explain.HeldBack,
	explain.UpToDate, explain.NeverSent, explain.Stale, explain.Noise, explain.Pruned,
}

// verdictClass is how a verdict is painted.
func verdictClass(v explain.Verdict) string {
	switch v {
	case explain.Undecidable, explain.Refused:
		return "bad"
	case explain.Unknown, explain.NotYet, explain.Queued:
		return "warn"
	case explain.Sent, explain.UpToDate:
		return "good"
	}
	return "weak"
}

// judge sorts services and folds those that are too many.
func (b *explainBody) judge() {
	b.Judged = slices.Clone(b.X.Services)
	slices.SortStableFunc(b.Judged, func(x, y explain.Service) int {
		return slices.Index(urgency, x.Verdict) - slices.Index(urgency, y.Verdict)
	})
	if len(b.Judged) > maxJudged {
		b.Judged, b.Folded = b.Judged[:maxJudged], b.Judged[maxJudged:]
	}
}

// FoldedWords summarizes the folded services: "188 more services: 150 pruned, 38 held back".
func (b explainBody) FoldedWords() string {
	counts := map[explain.Verdict]int{}
	for _, s := range b.Folded {
		counts[s.Verdict]++
	}
	var each []string
	for _, v := range urgency {
		if counts[v] > 0 {
			each = append(each, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	return fmt.Sprintf("%d more services: %s", len(b.Folded), strings.Join(each, ", "))
}

// view shows one entity's story.
func (p entitySection) view(r *http.Request) (view, error) {
	q := r.URL.Query()
	b := explainBody{Entity: q.Get("entity"), Service: q.Get("service"), Services: p.suggestions()}
	if b.Entity != "" {
		var err error
		b.X, err = p.explainInTime(r.Context(), explain.Input{
			Config: p.opt.Config(), Store: p.opt.Store, Entity: b.Entity, Service: p.opt.Config().FirstName(b.Service), Payload: true,
		})
		if errors.Is(err, explain.ErrUnknownService) {
			return view{}, errNoService
		}
		if err != nil {
			return view{}, err
		}
		b.judge()
		b.Versions = versions(b.X)
	}
	return view{Title: "Explain an entity", Section: "/entities", Body: b}, nil
}

// explainInTime explains with the inbox if that answers in time, else without.
func (p entitySection) explainInTime(ctx context.Context, in explain.Input) (*explain.Explanation, error) {
	reaching, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	env, err := p.opt.Tools(reaching)
	if err == nil {
		reached := in
		reached.Inbox, reached.Log = env.Inbox, env.Log
		x, e := explain.Explain(reaching, reached)
		if e == nil || reaching.Err() == nil || ctx.Err() != nil {
			return x, e
		}
		err = e
	}
	in.NoInbox = err.Error()
	return explain.Explain(ctx, in)
}
