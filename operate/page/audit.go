package page

import (
	"context"
	"math"
	"net/http"
	"slices"
	"sort"
	"strconv"

	"github.com/seed-86dfc502/weir/store"
)

// auditSection serves the audit rows.
type auditSection struct{ *Page }

const pageAudits = 100

type auditBody struct {
	Rows  []store.Audit // the latest first
	Older int64         // where the next page begins; 0 for none
}

// view lists what operators did, the latest first.
func (p auditSection) view(w http.ResponseWriter, r *http.Request, who *session) {
	before := int64(math.MaxInt64)
	if text := r.URL.Query().Get("before"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			p.renderMessage(w, r, http.StatusBadRequest, "There is no such page.")
			return
		}
		before = n
	}
	rows, more, err := p.auditsBefore(r.Context(), before)
	if err != nil {
		p.renderError(w, r, err)
		return
	}
	b := auditBody{Rows: rows}
	if more {
		b.Older = rows[len(rows)-1].ID
	}
	p.show(w, http.StatusOK, "audit", view{Title: "Audit", Section: "/audit", Session: who, Body: b})
}

// auditsBefore returns the last rows with smaller ids, the latest first, and
// whether there are older ones. The store pages upwards, so the place to begin is
// searched for: ids have gaps, and old rows are removed.
func (p auditSection) auditsBefore(ctx context.Context, before int64) (rows []store.Audit, more bool, err error) {
	// short reports whether less than a page of rows is between after and before, and
	// reads them.
	short := func(after int64) bool {
		var e error
		if rows, e = p.opt.Store.Audits(ctx, after, pageAudits); e != nil {
			err = e
			return true // ends the search
		}
		if i := slices.IndexFunc(rows, func(a store.Audit) bool { return a.ID >= before }); i >= 0 {
			rows = rows[:i]
		}
		return len(rows) < pageAudits
	}
	if short(0) {
		slices.Reverse(rows)
		return rows, false, err
	}
	oldest := rows[0].ID
	high := oldest
	for !short(high) { // there is an end: every step is twice as far
		high *= 2
	}
	begin := sort.Search(int(high), func(after int) bool { return short(int64(after)) })
	// One less is the last place with a whole page behind it.
	if short(int64(begin) - 1); err != nil {
		return nil, false, err
	}
	slices.Reverse(rows)
	return rows, rows[len(rows)-1].ID > oldest, nil
}
