package operate

import (
	"bytes"
	"context"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// The report that records whether a backfill to the active configuration is due.
const (
	backfillKind = "backfill"
	backfillName = "configuration"
)

// backfill is the body of that report.
type backfill struct {
	Fingerprint []byte    `json:"fingerprint"`  // of everything that decisions depend on
	Due         time.Time `json:"due,omitzero"` // since when; zero if no backfill is due
}

// NoteConfiguration records the fingerprint of the active configuration. After a change of
// it a backfill is due until BackfillDone.
func NoteConfiguration(ctx context.Context, s store.Reports, fingerprint []byte, now time.Time) error {
	b, err := readReport[backfill](ctx, s, backfillKind)
	if err != nil || bytes.Equal(b.Fingerprint, fingerprint) {
		return err
	}
	return updateReport(ctx, s, backfillKind, backfillName, func(b *backfill) {
		if b.Fingerprint != nil && !bytes.Equal(b.Fingerprint, fingerprint) && b.Due.IsZero() {
			b.Due = now.UTC().Truncate(time.Second)
		}
		b.Fingerprint = fingerprint
	})
}

// BackfillDone records that every entity was requested under a configuration.
func BackfillDone(ctx context.Context, s store.Reports, fingerprint []byte) error {
	return updateReport(ctx, s, backfillKind, backfillName, func(b *backfill) {
		if bytes.Equal(b.Fingerprint, fingerprint) {
			b.Due = time.Time{}
		}
	})
}

// BackfillItem returns the status line of a backfill that is due, or nil when none is.
func BackfillItem(ctx context.Context, s store.Reports) (*Item, error) {
	b, err := readReport[backfill](ctx, s, backfillKind)
	if err != nil || b.Due.IsZero() {
		return nil, err
	}
	return &Item{
		What: "configuration", Level: LevelDegraded, Since: b.Due,
		Why: "entities without an event since it changed are as the earlier one made them",
		Do:  "weir replay --outdated (weir plan shows its effect first)",
	}, nil
}
