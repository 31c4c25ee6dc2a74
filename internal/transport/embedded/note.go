package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"syscall"

	"github.com/seed-86dfc502/weir/internal/durable"
)

// noteSuffix names the file beside the database that says how far its logs were. A
// restored database does not know that itself.
const noteSuffix = ".note"

// note is the extent of the logs, which a process writes beside the file when it opens the logs, every now and
// then, and at its end.
type note struct {
	Generation uint16              `json:"generation"` // of the inbox
	File       uint64              `json:"file"`       // inode of the database
	Logs       map[string]notedLog `json:"logs"`       // by topic
}

type notedLog struct {
	ID   string  `json:"id"`
	Ends []int64 `json:"ends"` // of its partitions
}

func checksum(text []byte) uint32 { return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli)) }

// encode returns a note with its checksum.
func (n *note) encode() ([]byte, error) {
	text, err := json.Marshal(n)
	return fmt.Appendf(text, "\n%08x\n", checksum(text)), err
}

var errBadNote = errors.New("it is not what was written")

func decodeNote(b []byte) (*note, error) {
	text, _, _ := bytes.Cut(b, []byte("\n"))
	n := &note{}
	if string(b) != fmt.Sprintf("%s\n%08x\n", text, checksum(text)) {
		return nil, errBadNote
	}
	return n, json.Unmarshal(text, n)
}

// DetectRestore returns why the file seems to be a backup, or made elsewhere: it is another
// file than the last process had, or its logs are shorter. Offsets, and the versions made
// of them, would be used a second time then. why is empty otherwise. generation is the
// newest one that was noted, 0 if none was. The topics are open.
func (l *Logs) DetectRestore(ctx context.Context) (why string, generation uint16, err error) {
	path := l.path + noteSuffix
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path + " is not there", 0, nil
	} else if err != nil {
		return "", 0, err
	}
	noted, err := decodeNote(content)
	if err != nil {
		return path + " is damaged", 0, nil //nolint:nilerr // that is the answer
	}
	inode, err := l.inode()
	if err != nil {
		return "", 0, err
	}
	if noted.File != inode {
		return "it is another file than the last process had", noted.Generation, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, was := range noted.Logs {
		log := l.open[topic]
		if log == nil || log.ID() != was.ID {
			continue // this process has another one
		}
		_, ends, err := log.Bounds(ctx)
		if err != nil {
			return "", 0, err
		}
		for p, end := range was.Ends {
			if p < len(ends) && ends[p] < end {
				return fmt.Sprintf("%s ends at offset %d of partition %d, and once was at %d", topic, ends[p], p, end), noted.Generation, nil
			}
		}
	}
	return "", noted.Generation, nil
}

func (l *Logs) inode() (uint64, error) {
	info, err := os.Stat(l.path)
	if err != nil {
		return 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino, nil
	}
	return 0, nil
}

// Note writes beside the file how far its logs are, and the generation of the inbox, if
// that changed since the last call. It returns when that is durable.
func (l *Logs) Note(generation uint16) error {
	inode, err := l.inode()
	if err != nil {
		return err
	}
	l.noting.Lock()
	defer l.noting.Unlock()
	n := note{Generation: generation, File: inode, Logs: map[string]notedLog{}}
	l.mu.Lock() // do not hold it while writing the note: every append locks it
	for topic, log := range l.open {
		ends := make([]int64, log.Partitions())
		for p := range ends {
			ends[p], _ = log.End(int32(p))
		}
		n.Logs[topic] = notedLog{log.ID(), ends}
	}
	l.mu.Unlock()
	content, err := n.encode()
	if err != nil || bytes.Equal(content, l.noted) {
		return err
	}
	if err := durable.Replace(l.path+noteSuffix, content, 0o600); err != nil {
		return fmt.Errorf("note how far the logs are: %w", err)
	}
	l.noted = content
	return nil
}
