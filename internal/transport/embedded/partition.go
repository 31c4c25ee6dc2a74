package embedded

import (
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// partition hands out the frames of one partition, one at a time. Its fields belong
// to its goroutine.
type partition struct {
	*transport.Lane
	g          *Group
	number     int32
	assignment uint64
	at         int64                // the first offset that is not handed out
	known      int64                // records before it may have been handed out before
	waiting    []transport.Received // read and not handed out, from at on
}

func (p *partition) run() {
	defer p.Leave()
	for f, ok := p.next(); ok && p.HandOut(p.Context(), f); f, ok = p.next() {
		crash.At(crash.Acknowledged, p.g.gc.ID)
	}
}

// next returns the next frame, or false when nothing more is to be handed out.
func (p *partition) next() (*transport.Frame, bool) {
	g := p.g
	for len(p.waiting) == 0 {
		end, grows := g.log.End(p.number)
		if p.at < end {
			if !p.fetch() {
				return nil, false
			}
			continue
		}
		select {
		case <-grows:
		case <-p.Stopping().Done():
			return nil, false
		}
	}
	n, size := 0, int64(0)
	for n < len(p.waiting) && n < g.gc.FrameRecords {
		r := &p.waiting[n]
		if size += int64(r.Size()); n > 0 && size > g.gc.FrameBytes {
			break
		}
		r.Redelivered = r.Offset < p.known
		n++
	}
	f := transport.NewFrame(g.gc.Topic, g.log.ID(), p.number, p.assignment, p.waiting[:n:n])
	p.at = f.Last() + 1
	if p.waiting = p.waiting[n:]; len(p.waiting) == 0 {
		p.waiting = nil
	}
	return f, true
}

// minFetch keeps reads worth their while among very many partitions.
const minFetch = 32 << 10

// fetch reads records from at on. It repeats what failed, false when the subscription ends,
// because of that or by itself.
func (p *partition) fetch() bool {
	g := p.g
	share := min(g.gc.FrameBytes, max(minFetch, g.gc.BufferBytes/8/int64(g.log.Partitions())))
	_, err := wait.Retry(p.Stopping(), p.Stopping(), g.logs.log, "read the log", func() (err error) {
		if p.waiting, err = read(p.Context(), g.log, p.number, p.at, int(share)); store.ClassOf(err) == store.Fatal {
			return wait.Permanent(err)
		}
		return err
	})
	if err != nil {
		if store.ClassOf(err) == store.Fatal {
			g.Fail(err)
		}
		return false
	}
	if len(p.waiting) > 0 && p.waiting[0].Offset > p.at {
		g.lost(p.number, p.at, p.waiting[0].Offset)
	}
	crash.At(crash.Fetched, g.gc.ID)
	return true
}
