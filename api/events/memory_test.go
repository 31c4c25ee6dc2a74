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
	begun   int   // keys given to BeginClaims
	fails   error // of every call
	answers error // of CompleteClaims, as if the process were killed before
}

type memoryClaim struct {
	store.ClaimResult
	made time.Time
}

func newMemory() *memory {
	return &memory{claims: map[string]*memoryClaim{}, now: time.Now}
}

func (m *memory) BeginClaims(ctx context.Context, tenant string, intents []store.ClaimRequest, keep time.Duration) ([]store.ClaimResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.fails, ctx.Err(), store.CheckIntents(tenant, intents)); err != nil {
		return nil, err
	}
	m.begun += len(intents)
	now := m.now()
	all := make([]store.ClaimResult, len(intents))
	for i, in := range intents {
		at := tenant + "\x00" + in.Key
		c := m.claims[at]
		if c == nil || now.Sub(c.made) > keep {
			c = &memoryClaim{store.ClaimResult{State: store.ClaimOpen, ID: store.ClaimID(uuid.Must(uuid.NewV7())), Fingerprint: in.Fingerprint}, now}
			m.claims[at] = c
		}
		all[i] = c.ClaimResult
		if c.Fingerprint != in.Fingerprint {
			all[i] = store.ClaimResult{State: store.ClaimConflict, ID: c.ID, Fingerprint: c.Fingerprint}
		} else if c.Response.Status != 0 {
			all[i].State = store.ClaimDone
		}
	}
	return all, nil
}

func (m *memory) CompleteClaims(ctx context.Context, _ string, done []store.Completion) ([]store.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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

// asked counts the keys that were looked for.
func (m *memory) asked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.begun
}

// keys are those that are claimed.
func (m *memory) keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.claims)
}
