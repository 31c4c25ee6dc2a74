package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// build identifies a binary.
type build struct {
	Version string // "devel" where nothing says more
	Commit  string
	Changed bool // there were changes beside the commit
}

// buildOf reads the compiler's build information.
func buildOf(info *debug.BuildInfo, ok bool) build {
	b := build{Version: "devel"}
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = strings.TrimPrefix(v, "v")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Changed = s.Value == "true"
		}
	}
	return b
}

// String returns one line.
func (b build) String() string {
	parts := []string{}
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Changed {
			commit += " with changes"
		}
		parts = append(parts, commit)
	}
	return fmt.Sprintf("weir %s (%s)", b.Version, strings.Join(append(parts, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH), ", "))
}
