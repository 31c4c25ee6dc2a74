package page

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/store"
)

// auditSection serves the audit rows.
type auditSection struct{ *Page }

const pageAudits = 100

// auditFilter narrows the list, as text of a form.
type auditFilter struct{ Actor, Action, Entity, Service string }

// query returns the filter as part of an address.
func (f auditFilter) query(before int64) string {
	return query("actor", f.Actor, "action", f.Action, "entity", f.Entity, "service", f.Service, "before", strconv.FormatInt(before, 10))
}

// auditRow is one row, or the first and the last row of one operation.
type auditRow struct {
	store.Audit
	Facts []field // of its detail
}

// Filtered reports whether the filter narrows the list.
func (b auditBody) Filtered() bool { return b.Filter != auditFilter{} }

type auditBody struct {
	Filter auditFilter
	Rows   []auditRow // the latest first
	Older  string     // address of the next page
}

// view lists operators' actions, the latest first.
func (p auditSection) view(r *http.Request) (view, error) {
	q := r.URL.Query()
	before, err := strconv.ParseInt(cmp.Or(q.Get("before"), "0"), 10, 64)
	if err != nil || before < 0 {
		return view{}, refusal(http.StatusBadRequest, "There is no such page.")
	}
	b := auditBody{Filter: auditFilter{q.Get("actor"), q.Get("action"), q.Get("entity"), q.Get("service")}}
	rows, err := p.opt.Store.Audits(r.Context(), store.AuditFilter{
		Actor: b.Filter.Actor, Action: b.Filter.Action, Entity: b.Filter.Entity, Service: b.Filter.Service,
		NewestFirst: true, AfterID: before, Limit: pageAudits,
	})
	if err != nil {
		return view{}, err
	}
	if len(rows) == pageAudits {
		b.Older = "/audit?" + b.Filter.query(rows[len(rows)-1].ID)
	}
	b.Rows = folded(rows)
	return view{Title: "Audit", Section: "/audit", Body: b}, nil
}

// folded leaves out the first row of an operation where its last one is listed: that one
// has the count.
func folded(rows []store.Audit) (all []auditRow) {
	ended := map[string]bool{}
	for _, a := range rows {
		var detail map[string]json.RawMessage
		if json.Unmarshal(a.Detail, &detail) != nil {
			detail = map[string]json.RawMessage{"detail": a.Detail}
		}
		operation, state := string(detail["operation"]), string(detail["state"])
		if state == `"begun"` && ended[operation] {
			continue
		}
		if state != "" {
			ended[operation] = true
		}
		row := auditRow{Audit: a}
		for name, value := range detail {
			text := strings.Trim(string(value), `"`)
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				text = humanize.Comma(n)
			}
			if text != "" && text != "null" && text != "{}" {
				row.Facts = append(row.Facts, field{strings.ReplaceAll(name, "_", " "), cutText(text, maxBrief)})
			}
		}
		slices.SortFunc(row.Facts, func(x, y field) int {
			return cmp.Or(cmp.Compare(len(x.From)/maxBrief, len(y.From)/maxBrief), cmp.Compare(x.Out, y.Out))
		})
		all = append(all, row)
	}
	return all
}
