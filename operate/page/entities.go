package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/seed-86dfc502/weir/store"
)

// entitySection serves entities and their explanation.
type entitySection struct{ *Page }

const pageEntities = 50

// entityRow is one stored entity.
type entityRow struct {
	ID, Version string
	Sources     []string // that have a document of it
	Size        int      // of these documents, in bytes
	Deleted     time.Time
}

// Path is where it is explained.
func (e entityRow) Path() string { return "/explain?entity=" + url.QueryEscape(e.ID) }

type entitiesBody struct {
	Q, After string
	Rows     []entityRow
	Next     string // address of the next page
	Total    int64
	Counted  bool
}

// list lists those whose ids begin with a text, in the byte order of ids.
func (p entitySection) list(r *http.Request) (view, error) {
	b := entitiesBody{Q: r.URL.Query().Get("q"), After: r.URL.Query().Get("after")}
	if n, err := p.opt.Store.CountEntities(r.Context()); err == nil {
		b.Total, b.Counted = n, true
	}
	found, more, err := p.entitiesFrom(r.Context(), b.Q, b.After)
	if err != nil {
		return view{}, err
	}
	for _, e := range found {
		row := entityRow{ID: e.ID, Version: e.Version.String(), Size: len(e.Docs), Deleted: e.Deleted}
		var docs map[string]json.RawMessage
		if json.Unmarshal(e.Docs, &docs) == nil {
			for source := range docs {
				row.Sources = append(row.Sources, source)
			}
			slices.Sort(row.Sources)
		}
		b.Rows = append(b.Rows, row)
	}
	if more {
		b.Next = "/entities?" + url.Values{"q": {b.Q}, "after": {found[len(found)-1].ID}}.Encode()
	}
	return view{Title: "Entities", Section: "/entities", Body: b}, nil
}

// entitiesFrom returns a page of the entities whose ids begin with prefix, behind
// after.
func (p entitySection) entitiesFrom(ctx context.Context, prefix, after string) (found []store.Entity, more bool, err error) {
	if prefix != "" && after < prefix {
		// The entity whose id is the prefix itself comes first.
		one, err := p.opt.Store.Entity(ctx, prefix)
		if err == nil {
			found = append(found, one)
		} else if !errors.Is(err, store.ErrNotFound) {
			return nil, false, err
		}
		after = prefix
	}
	rest, err := p.opt.Store.Entities(ctx, after, pageEntities+1-len(found))
	if err != nil {
		return nil, false, err
	}
	for _, e := range rest {
		if strings.HasPrefix(e.ID, prefix) {
			found = append(found, e)
		}
	}
	if len(found) > pageEntities {
		return found[:pageEntities], true, nil
	}
	return found, false, nil
}

// version is an event with its changes to the source's document, as far as the payloads show
// them.
type version struct {
	explain.Event
	Diff []plan.Difference
	More int
	// Told names the base of the differences, empty without one.
	Told string
}

// Applied reports whether the event took effect.
func (v version) Applied() bool {
	return slices.Contains([]string{"merged", "noise", "incomplete"}, v.Outcome)
}

// versions compares each event with the previous event of the same source. A patch lists its own
// changes.
func versions(x *explain.Explanation) (all []version) {
	patches := map[string]bool{}
	for _, s := range x.Sources {
		patches[s.Source] = s.Mode == "patch"
	}
	last := map[string]json.RawMessage{}
	for _, e := range x.Events {
		v := version{Event: e}
		if e.Record != nil && e.Source != "" && e.Record.Payload != nil {
			before, known := last[e.Source]
			switch {
			case patches[e.Source]:
				v.Diff, v.More = plan.Differences([]byte("{}"), e.Record.Payload)
				v.Told = "it sets"
			case known:
				v.Diff, v.More = plan.Differences(before, e.Record.Payload)
				v.Told = "since the one before it of this source"
				if len(v.Diff) == 0 {
					v.Told = "nothing differs from the one before it of this source"
				}
			}
			if v.Applied() {
				last[e.Source] = e.Record.Payload
			}
		}
		all = append(all, v)
	}
	slices.Reverse(all)
	return all
}
