package doctor

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"golang.org/x/sys/unix"
)

// Free room on a disk below which something is said.
const (
	fewBytes   = 1 << 30
	tooFew     = 128 << 20
	fewPercent = 5
	// filesPerService and filesBeside are open files that a process may need.
	filesPerService = 4
	filesBeside     = 256
	// fewCached is the part of entities in memory, in percent, below which something is said, and
	// busy the entities per second above which it matters.
	fewCached = 80
	busy      = 100
)

// disks looks at folders in which this process writes: room and rights.
func (e *examination) disks() {
	folders := map[string]bool{}
	if file := e.cfg.Store.File; file != "" {
		folders[nearest(filepath.Dir(file))] = true
		if info, err := os.Stat(filepath.Dir(file)); err == nil && info.Mode().Perm()&0o077 != 0 {
			e.add("disk "+filepath.Dir(file), operate.LevelDegraded, "others than its owner may look into the folder with the state: "+info.Mode().Perm().String(), "chmod 700 "+filepath.Dir(file))
		}
	}
	for _, s := range e.cfg.Services() {
		if f, ok := s.Delivery.Sink.(config.FileWriter); ok {
			folders[nearest(filepath.Dir(f.OutputFile()))] = true
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(folders)) {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			e.add("disk "+dir, operate.LevelDegraded, "its room cannot be read: "+err.Error(), "look by hand")
			continue
		}
		e.room(dir, s.Bavail*uint64(s.Bsize), s.Blocks*uint64(s.Bsize))
	}
}

// room judges the free space of a disk.
func (e *examination) room(dir string, free, whole uint64) {
	found := fmt.Sprintf("%s of %s free", humanize.IBytes(free), humanize.IBytes(whole))
	const do = "make room, or move data_dir or the output to a larger disk: on a full one Weir halts until there is room"
	switch {
	case free < tooFew:
		e.add("disk "+dir, operate.LevelDown, found, do)
	case free < fewBytes || free*100 < whole*fewPercent:
		e.add("disk "+dir, operate.LevelDegraded, found, do)
	default:
		e.fact("%s: %s", dir, found)
	}
}

// nearest returns the folder, or the nearest above it that exists.
func nearest(dir string) string {
	for {
		if info, err := os.Stat(dir); err == nil && info.IsDir() || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}

// process looks at the limits of processes of this user, which that of weir has too when it
// is started in the same way.
func (e *examination) process() {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil {
		need := uint64(filesBeside + filesPerService*len(e.cfg.Services()))
		if limit.Cur < need {
			e.add("this machine", operate.LevelDegraded, fmt.Sprintf("a process may open %d files, and this configuration may need %d", limit.Cur, need), "ulimit -n, or LimitNOFILE= of the systemd unit")
		} else {
			e.fact("%s open files", humanize.Comma(int64(min(limit.Cur, 1<<40))))
		}
	}
}

// memory adds that decisions of a process read many entities from the store.
func (e *examination) memory(p operate.Process) {
	if all := p.Cached + p.Loaded; all >= busy && p.Cached*100 < all*fewCached {
		e.add("process "+p.Name, operate.LevelDegraded,
			fmt.Sprintf("of %.0f entities per second, %.0f %% were in memory: each of the others is read from the store", all, p.Cached*100/all),
			"raise limits.memory if that is so after the first load, too")
	}
}
