package operate

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// Pauses is the part of a store that pausing needs.
type Pauses interface {
	Pauses(ctx context.Context) ([]store.Pause, error)
	PutPause(ctx context.Context, p store.Pause, audit store.Audit) error
	EndPause(ctx context.Context, service string, audit store.Audit) error
}

// Paused returns the services that are paused by operators or the guard, by name.
func Paused(ctx context.Context, s interface {
	Pauses(ctx context.Context) ([]store.Pause, error)
}) (map[string]store.Pause, error) {
	pauses, err := s.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	all := make(map[string]store.Pause, len(pauses))
	for i := range pauses {
		all[pauses[i].Service] = pauses[i]
	}
	return all, nil
}

// PauseService pauses deliveries to a service until ResumeService, in every process and
// over restarts, and records it. A service that is paused already stays as it is.
func PauseService(ctx context.Context, s Pauses, service, actor, why string) error {
	p := store.Pause{Service: service, Since: time.Now().UTC().Truncate(time.Microsecond), Actor: actor, Reason: why}
	return s.PutPause(ctx, p, store.Audit{Actor: actor, Action: "pause", Service: service, Reason: why})
}

// ResumeService resumes deliveries to a service that an operator paused, and records it. A hold
// by the guard stays: EndHold ends it.
func ResumeService(ctx context.Context, s Pauses, service, actor, why string) error {
	return s.EndPause(ctx, service, store.Audit{Actor: actor, Action: "resume", Service: service, Reason: why})
}
