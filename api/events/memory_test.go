package events_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/store"
)

// memory is a ledger in memory, with faults for tests.
type memory struct {
	mu      sync.Mutex
	claims  map[string]*memoryClaim // tenant, NUL, key
	now     func() time.Time
	calls   int   // of BeginClaims
	fails   error // of every call
	answers error // of CompleteClaims
	// dead: nothing after the append happens, as if the process were killed.
	dead bool
}

type memoryClaim struct {
	store.ClaimResult
	made, leased time.Time
}

func newMemory() *memory {
	return &memory{claims: map[string]*memoryClaim{}, now: time.Now}
}

func (m *memory) BeginClaims(ctx context.Context, tenant string, intents []store.ClaimRequest, lease, keep time.Duration) ([]store.ClaimResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.fails, ctx.Err()); err != nil {
		return nil, err
	}
	m.calls++
	now := m.now()
	all := make([]store.ClaimResult, len(intents))
	seen := map[string]bool{}
	for i, in := range intents {
		if seen[in.Key] {
			return nil, errors.New("a key twice in one call")
		}
		seen[in.Key] = true
		at := tenant + "\x00" + in.Key
		c := m.claims[at]
		switch {
		case c == nil || now.Sub(c.made) > keep:
			c = &memoryClaim{store.ClaimResult{State: store.ClaimStarted, ID: store.ClaimID(uuid.Must(uuid.NewV7())), Fingerprint: in.Fingerprint}, now, now.Add(lease)}
			m.claims[at] = c
			all[i] = c.ClaimResult
			continue
		case c.Fingerprint != in.Fingerprint:
			all[i] = store.ClaimResult{State: store.ClaimConflict, ID: c.ID, Fingerprint: c.Fingerprint}
		case c.Response.Status != 0:
			all[i] = store.ClaimResult{State: store.ClaimDone, ID: c.ID, Fingerprint: c.Fingerprint, Response: c.Response}
		case now.Before(c.leased):
			all[i] = store.ClaimResult{State: store.ClaimBusy, ID: c.ID, Fingerprint: c.Fingerprint, Wait: c.leased.Sub(now)}
		default:
			c.leased = now.Add(lease)
			all[i] = store.ClaimResult{State: store.ClaimResumed, ID: c.ID, Fingerprint: c.Fingerprint}
		}
	}
	return all, nil
}

func (m *memory) CompleteClaims(ctx context.Context, _ string, done []store.Completion) ([]store.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return nil, errors.New("dead")
	}
	if err := errors.Join(m.fails, m.answers, ctx.Err()); err != nil {
		return nil, err
	}
	all := make([]store.Response, len(done))
	for i, d := range done {
		all[i] = d.Response
		for _, c := range m.claims {
			if c.ID != d.ID {
				continue
			}
			if c.Response.Status == 0 {
				c.Response = d.Response
			}
			all[i] = c.Response
		}
	}
	return all, nil
}

func (m *memory) AbandonClaims(ctx context.Context, _ string, ids []store.ClaimID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.fails, ctx.Err()); err != nil || m.dead {
		return err
	}
	for _, id := range ids {
		for _, c := range m.claims {
			if c.ID == id {
				c.leased = time.Time{}
			}
		}
	}
	return nil
}

func (m *memory) RetainClaims(context.Context, time.Duration) (int, error) { return 0, nil }

func (m *memory) LedgerStats(context.Context) (store.LedgerStats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.LedgerStats{Held: int64(len(m.claims))}, nil
}

// set changes the ledger's faults or clock.
func (m *memory) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// keys are those that are claimed.
func (m *memory) keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.claims)
}
