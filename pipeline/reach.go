package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// toolsTimeout bounds how long a command waits for a process that starts or
// ends meanwhile.
const toolsTimeout = 10 * time.Second

// Reach returns either tools of this process's own, or, when another process has
// the data folder open, how to forward a command to that one. It waits a moment
// for a process that is just starting or ending.
func Reach(ctx context.Context, opt Options) (*Pipeline, *control.Running, error) {
	deadline := time.Now().Add(toolsTimeout)
	for {
		p, err := OpenTools(ctx, opt)
		if !errors.Is(err, ErrInUse) {
			return p, nil, err
		}
		if opt.Config.Admin.Off() {
			return nil, nil, fmt.Errorf("%w; a command reaches that process by its operators' listener, which is off: set admin.listen, or stop the process first", err)
		}
		if r := control.Find(opt.Config); r != nil {
			return nil, r, nil
		}
		if time.Now().After(deadline) {
			return nil, nil, fmt.Errorf("%w, which has not said how to reach it: it may still be starting, or run without admin.listen", err)
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			return nil, nil, context.Cause(ctx)
		}
	}
}
