package operate

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
)

// The report that says which services operators suspended, for all processes.
const (
	suspendKind = "suspended"
	suspendName = "services"
)

// SuspendStore is what suspending asks of a store.
type SuspendStore interface {
	store.Reports
	AddAudits(ctx context.Context, audits []store.Audit) error
}

// Suspended returns the services that operators suspended, by name.
func Suspended(ctx context.Context, s store.Reports) (map[string]deliver.Suspension, error) {
	reports, err := s.ListReports(ctx, suspendKind)
	if err != nil {
		return nil, err
	}
	all := map[string]deliver.Suspension{}
	for _, r := range reports {
		if err := json.Unmarshal(r.Body, &all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// SuspendService suspends deliveries to a service until ResumeService, in every process and
// over restarts, and records it. A service that is suspended already stays as it is.
func SuspendService(ctx context.Context, s SuspendStore, service, actor, why string) error {
	return changeSuspended(ctx, s, store.Audit{Actor: actor, Action: "pause", Service: service, Reason: why}, func(all map[string]deliver.Suspension) {
		if _, already := all[service]; !already {
			all[service] = deliver.Suspension{Since: time.Now().UTC().Truncate(time.Microsecond), By: actor, Why: why}
		}
	})
}

// ResumeService resumes deliveries to a suspended service, and records it.
func ResumeService(ctx context.Context, s SuspendStore, service, actor, why string) error {
	return changeSuspended(ctx, s, store.Audit{Actor: actor, Action: "resume", Service: service, Reason: why}, func(all map[string]deliver.Suspension) {
		delete(all, service)
	})
}

func changeSuspended(ctx context.Context, s SuspendStore, audit store.Audit, change func(map[string]deliver.Suspension)) error {
	// The audit row comes first: a repeated row does no harm, an unrecorded action does.
	if err := s.AddAudits(ctx, []store.Audit{audit}); err != nil {
		return err
	}
	return s.UpdateReport(ctx, suspendKind, suspendName, func(body []byte) ([]byte, error) {
		all := map[string]deliver.Suspension{}
		if body != nil {
			if err := json.Unmarshal(body, &all); err != nil {
				return nil, err
			}
		}
		change(all)
		return json.Marshal(all)
	})
}
