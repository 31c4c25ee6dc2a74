//go:build crash

package crash

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Enabled reports whether the points are compiled in.
const Enabled = true

// plan is the plan of the environment. It is read once and belongs to the process, as its
// death does.
type plan struct {
	name, place string
	nth         int

	mu  sync.Mutex
	log *os.File
}

var current = sync.OnceValue(func() *plan {
	p := &plan{}
	if file := os.Getenv("WEIR_CRASH_LOG"); file != "" {
		var err error
		if p.log, err = os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
			panic(err)
		}
	}
	wanted := os.Getenv("WEIR_CRASH")
	if wanted == "" {
		return p
	}
	at := strings.LastIndexByte(wanted, ':')
	if at < 0 {
		panic("WEIR_CRASH must be name:n or name@place:n")
	}
	var err error
	if p.nth, err = strconv.Atoi(wanted[at+1:]); err != nil || p.nth < 1 {
		panic("WEIR_CRASH: the passing must be a number from 1: " + wanted)
	}
	p.name, p.place, _ = strings.Cut(wanted[:at], "@")
	return p
})

// At is passing a point at a place. The place may be empty.
func At(name, place string) {
	if Due(name, place) {
		Die()
	}
}

// Due is At for code that has something to do before it dies: true means do it
// now, then call Die.
func Due(name, place string) bool {
	p := current()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note("", name, place)
	if name != p.name || !strings.HasSuffix(place, p.place) {
		return false
	}
	p.nth--
	if p.nth != 0 {
		return false
	}
	p.note("killed ", name, place)
	return true
}

func (p *plan) note(mark, name, place string) {
	if p.log == nil {
		return
	}
	if place == "" {
		place = "-"
	}
	if _, err := fmt.Fprintf(p.log, "%s%s %s\n", mark, name, place); err != nil {
		panic(err)
	}
}

// Die ends the process as at a point. It does not return.
func Die() {
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
	select {} // until the signal is here
}
