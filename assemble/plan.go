package assemble

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
)

// recordOverhead is what key, header and encoding of one record may add to
// its document, in bytes.
const recordOverhead = 64 << 10

// Plan compiles what decisions depend on. numbers returns the store's numbers of the services and
// revision the active revision. A dry run may make up both.
func Plan(c *config.Config, numbers map[string]int32, revision int64) (*decide.Plan, error) {
	// Only the name of a source whose variable is not set gets here unchecked.
	for _, name := range slices.Concat(c.Merge.Precedence, c.Merge.Required) {
		if !slices.Contains(c.Sources.Names(), name) {
			return nil, fmt.Errorf("merge: there is no source %q", name)
		}
	}
	fingerprint := c.Fingerprint()
	p := &decide.Plan{
		Merge: merge.Compile(c.MergeSpec()), Fingerprint: fingerprint[:], Revision: revision,
		MaxChange: int(c.Limits.Change),
	}
	for i := range c.Projections {
		compiled, err := c.Compiled(i)
		if err != nil {
			return nil, err
		}
		p.Projections = append(p.Projections, compiled)
	}
	for _, s := range c.Services() {
		number, ok := numbers[s.Name]
		if !ok {
			return nil, fmt.Errorf("service %s has no number", s.Name)
		}
		p.Services = append(p.Services, decide.Service{Name: s.Name, Number: number, Projection: s.Projection, Log: sinks.Kind(s.Delivery.DeliveryMode()) == sinks.Log})
	}
	return p, p.Prepare()
}

// rememberedRevisions is how many earlier configurations a plan knows: entities that were
// last evaluated under an older one are evaluated for all services.
const rememberedRevisions = 32

// PlanAfter is Plan for a process that decides: it knows which services are new since
// earlier revisions of the store. Without them, as after a failed read, it is as valid:
// entities are evaluated for all services at their next event.
func PlanAfter(ctx context.Context, s interface {
	Revisions(ctx context.Context, limit int) ([]store.Revision, error)
}, log *slog.Logger, c *config.Config, numbers map[string]int32, revision int64) (*decide.Plan, error) {
	p, err := Plan(c, numbers, revision)
	if err != nil {
		return nil, err
	}
	earlier, err := s.Revisions(ctx, rememberedRevisions)
	if err != nil {
		log.Warn("earlier revisions cannot be read: entities are evaluated for all services", "event", "revision.history_unreadable", "error", err)
	}
	own := c.Prints()
	for _, r := range earlier {
		fingerprint, base, services, ok := config.PrintsOf(r.Fingerprint)
		if !ok || base != own.Base {
			continue
		}
		fresh := make([]bool, len(p.Services))
		for i := range p.Services {
			fresh[i] = !services[own.Services[p.Services[i].Name]]
		}
		p.Learn(fingerprint, fresh)
	}
	return p, nil
}

// ExtractorOf returns the parser of a source's events.
func ExtractorOf(c *config.Config, s *config.Source) (ingest.Extractor, error) {
	rules, err := stripper.Compile(s.Strip)
	if err != nil {
		return ingest.Extractor{}, fmt.Errorf("source %s: %w", s.Name, err)
	}
	locator := func(l config.Locator) ingest.Locator {
		return ingest.Locator{Path: l.Path, Header: l.Header, Key: l.Key}
	}
	shape := ingest.Extractor{
		Source: s.Name, Entity: locator(s.Entity), EventID: locator(s.EventID), Operation: locator(s.Operation),
		Sequence: locator(s.Sequence), Payload: s.Payload.Path, IsDelete: s.IsDelete, Strip: rules,
		Format: ingest.Format(s.Format), WholeRows: s.RowImage != "", UnchangedAsNull: s.UnchangedAsNull,
		MaxEvent: int(s.MaxEvent), MaxEntity: int(c.Limits.EntityID),
	}
	placeholder := s.UnavailableValue
	if s.Format == config.FormatDebezium {
		placeholder = cmp.Or(placeholder, ingest.DebeziumUnavailable)
	}
	if shape.Unavailable, err = ingest.NewUnavailable(placeholder); err != nil {
		return ingest.Extractor{}, fmt.Errorf("source %s: %w", s.Name, err)
	}
	if e, ok := s.Input.(config.SelfDescribing); ok {
		at := e.Envelope()
		shape.Entity, shape.EventID, shape.Operation = locator(at.Entity), locator(at.EventID), locator(at.Operation)
		shape.ByUUID, shape.Session, shape.Unchanged, shape.Noun = at.UUID, locator(at.Session), locator(at.Unchanged), at.Noun
		if at.Sequence != (config.Locator{}) {
			shape.Sequence = locator(at.Sequence)
		}
	}
	return shape, nil
}
