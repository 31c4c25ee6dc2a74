// Package durable writes files and directories that survive a power loss: files
// that are synced, in a directory that is synced, too.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// SyncDir makes the entries of a folder durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MkdirAll makes a folder and those above it that are missing.
func MkdirAll(dir string, mode fs.FileMode) error {
	var missing []string
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil || !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, d)
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return err
	}
	for _, d := range missing {
		if err := SyncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

// Create makes a file with this content for its user alone, whole or not at all. It leaves an
// existing file as it is.
func Create(path string, content []byte) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	temporary, err := write(path, content, 0o600)
	if err != nil {
		return err
	}
	err = os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temporary), SyncDir(filepath.Dir(path)))
}

// Replace writes a file's content and mode, or leaves it as it was. Its owner and group stay. A
// user who may not change them cannot replace it.
func Replace(path string, content []byte, mode fs.FileMode) error {
	temporary, err := write(path, content, mode)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return SyncDir(filepath.Dir(path))
}

// write writes a file of a name of its own beside path.
func write(path string, content []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, keepOwner(f, path), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// keepOwner sets f to the owner and group of the file at path, if that exists.
func keepOwner(f *os.File, path string) error {
	old, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	made, err := f.Stat()
	if err != nil {
		return err
	}
	was, is := old.Sys().(*syscall.Stat_t), made.Sys().(*syscall.Stat_t)
	if was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return f.Chown(int(was.Uid), int(was.Gid))
}
