package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/api/problem"
	"golang.org/x/time/rate"
)

// quota limits the tokens of one tenant together; nil has no bound.
type quota struct{ rows, bytes *rate.Limiter }

// maxTenants bounds the tenants that are remembered.
const maxTenants = 10_000

// quota returns that of a tenant.
func (s *Server) quota(tenant string) *quota {
	if s.opt.TenantRows <= 0 && s.opt.TenantBytes <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.quotas[tenant]; found != nil {
		return found
	}
	if len(s.quotas) >= maxTenants {
		for name, old := range s.quotas {
			if full(old.rows) && full(old.bytes) { // it has nothing to remember
				delete(s.quotas, name)
			}
		}
	}
	made := &quota{limiter(s.opt.TenantRows, int64(s.opt.MaxRows)), limiter(s.opt.TenantBytes, s.opt.MaxBody)}
	s.quotas[tenant] = made
	return made
}

// limiter has room for those of two seconds, and for what one request may have.
func limiter(perSecond, most int64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), int(max(2*perSecond, most)))
}

func full(l *rate.Limiter) bool { return l == nil || l.Tokens() >= float64(l.Burst()) }

// spend takes rows and bytes of the tenant's quota, or returns how long until there
// are so many. A refused request costs nothing.
func (q *quota) spend(rows, bytes int) (wait time.Duration) {
	if q == nil {
		return 0
	}
	now := time.Now() // one for all: a reservation of an earlier moment counts as used
	var taken []*rate.Reservation
	for _, of := range []struct {
		limit *rate.Limiter
		n     int
	}{{q.rows, rows}, {q.bytes, bytes}} {
		if of.limit == nil {
			continue
		}
		r := of.limit.ReserveN(now, min(of.n, of.limit.Burst()))
		taken = append(taken, r)
		wait = max(wait, r.DelayFrom(now))
	}
	if wait > 0 {
		for _, r := range taken {
			r.CancelAt(now)
		}
	}
	return wait
}

// charge counts a body against the quota of its tenant, or answers 429.
func (q *request) charge(w http.ResponseWriter, rows, bytes int) bool {
	s := q.server
	wait := s.quota(q.seen.who.Tenant).spend(rows, bytes)
	if wait <= 0 {
		return true
	}
	RetryAfter(w, wait)
	problem.Write(w, problem.Problem{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf(
		"the tenant has used up its quota (rows per second: %d, bytes per second: %d; 0 is no bound)", s.opt.TenantRows, s.opt.TenantBytes)})
	return false
}
