package control

import (
	"context"
	"net/http"
	"time"
)

// During lets h answer while the process runs. Close cancels requests and waits for them,
// since they use the open state of the process; a client that does not read its answer has a second then.
func (s *Server) During(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave, err := s.enter(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		defer context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second)) })()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// RunInBackground runs f on a goroutine of its own. Close cancels its context and waits for
// it. It returns false, and does not run f, when the process is ending.
func (s *Server) RunInBackground(f func(ending context.Context)) bool {
	ctx, leave, err := s.enter(context.Background())
	if err != nil {
		return false
	}
	go func() {
		defer leave()
		f(ctx)
	}()
	return true
}

// Do runs f here, under the same rules. ErrEnding, and f is not run, when the
// process is ending.
func (s *Server) Do(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return f(ctx)
}
