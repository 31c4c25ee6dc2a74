package config

import (
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// checkFiles keeps file sinks away from Weir's own files and from devices, and two
// names away from one state file.
func (l *loader) checkFiles() {
	own := l.ownFiles()
	if info, err := os.Stat(l.config.Store.File); err == nil {
		if sys, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && sys.Nlink > 1 {
			l.main.fault("data_dir", "holds a state.db that has a second name (a hard link), and SQLite keeps its log beside each", "remove the other name, or copy the file while nothing runs")
		}
	}
	for _, s := range l.config.Services() {
		w, ok := s.Delivery.Sink.(FileWriter)
		if !ok {
			continue
		}
		doc, path := l.ownerOf(s)
		at := path + "." + s.Delivery.Sink.Kind() + "." + s.Delivery.Sink.Target(&l.config.Kafka.Cluster).Key
		file := w.OutputFile()
		if file == "" || !doc.known(at) {
			continue
		}
		info, err := os.Stat(file)
		if err == nil && !info.Mode().IsRegular() {
			doc.fault(at, "is not a regular file", "a file, or the name of a new one")
			continue
		}
		for _, name := range namesOf(file, info) {
			if what, is := own[name]; is {
				doc.fault(at, "is a file of Weir itself: "+what, "a file of the sink's own")
				break
			}
		}
	}
}

// namesOf returns the names by which a file is known: its path without links, and, if info is
// not nil, its place in the file system, which its hard links share.
func namesOf(file string, info os.FileInfo) []any {
	names := []any{absolute(file)}
	if info != nil {
		if sys, ok := info.Sys().(*syscall.Stat_t); ok {
			names = append(names, [2]uint64{uint64(sys.Dev), sys.Ino})
		}
	}
	return names
}

// ownFiles describes, by their names, the files that no sink may write: those of the
// configuration, those that the main file names, and the state with what SQLite and the
// process keep beside it.
func (l *loader) ownFiles() map[any]string {
	all := map[any]string{}
	add := func(file, what string) {
		if file == "" {
			return
		}
		info, _ := os.Stat(file)
		for _, name := range namesOf(file, info) {
			if _, known := all[name]; !known {
				all[name] = what
			}
		}
	}
	add(l.main.file, "the main file")
	for _, doc := range l.customers {
		add(doc.file, "a customer's file")
	}
	if file := l.config.Store.File; file != "" {
		for _, end := range []string{"", "-wal", "-shm", "-journal", ".control"} {
			add(file+end, "the state")
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.main.files)) {
		if !strings.HasPrefix(path, "sources.") { // reading and writing one file has its own fault
			add(l.main.files[path], path)
		}
	}
	return all
}

// absolute returns one canonical name for a file.
func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real
	}
	// The file is yet to be made. Its folder, or one above, may be a link.
	if folder := filepath.Dir(abs); folder != abs {
		return filepath.Join(absolute(folder), filepath.Base(abs))
	}
	return abs
}

// badPort reports whether a URL or connection string names a port that is none.
func badPort(text string) bool {
	hosts, set := "", map[string]string{}
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		hosts = u.Host
	} else {
		_, set = connection(text)
	}
	ports := strings.Split(set["port"], ",")
	for host := range strings.SplitSeq(hosts, ",") {
		if _, port, err := net.SplitHostPort(host); err == nil {
			ports = append(ports, port)
		}
	}
	for _, port := range ports {
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
			return true
		}
	}
	return false
}
