package noise

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// Kind is the kind of the store's reports that hold summaries of suppressed events.
const Kind = "noise"

// Scope is the suffix of the names of a configuration's reports, since suppressions depend on
// the configuration.
func Scope(fingerprint []byte) string { return "/" + hex.EncodeToString(fingerprint[:8]) }

// Result is the noise of a configuration.
type Result struct {
	// From and To are the days that were summed up, empty without any.
	From    string   `json:"from,omitempty"`
	To      string   `json:"to,omitempty"`
	Sources []Report `json:"sources"`
	// Others: something was seen under another configuration.
	Others bool `json:"-"`
}

// Read adds the reports of the deciding processes under a configuration, for the sources that
// want selects. It fails if the store fails or a report cannot be read.
func Read(ctx context.Context, s store.Reports, cfg *config.Config, want func(source string) bool) (Result, error) {
	var r Result
	var sources []Source
	for _, m := range cfg.MergeSpec().Sources {
		if want(m.Name) {
			sources = append(sources, Source{Name: m.Name, Strip: cfg.Sources.Find(m.Name).Strip, Mount: m.Mount})
		}
	}
	var views []*projections.Projection
	for i := range cfg.Projections {
		view, err := cfg.Compiled(i)
		if err != nil {
			return r, err
		}
		views = append(views, view)
	}
	reports, err := s.ListReports(ctx, Kind)
	if err != nil {
		return r, err
	}
	fingerprint := cfg.Fingerprint()
	scope := Scope(fingerprint[:])
	r.Others = len(reports) > 0
	all := fieldcount.Summary{}
	for _, report := range reports {
		day, is := strings.CutSuffix(report.Name, scope)
		if !is {
			continue
		}
		var some fieldcount.Summary
		if err := json.Unmarshal(report.Body, &some); err != nil {
			return r, fmt.Errorf("report %s: %w", report.Name, err)
		}
		all.Merge(some)
		if r.From == "" {
			r.From = day
		}
		r.To = day
	}
	r.Sources = Make(all, sources, views)
	return r, nil
}
