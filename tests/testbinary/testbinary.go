// Package testbinary builds weir for tests that run it as a process.
//
// The packages of a test run need the same one or two binaries, and linking one
// costs more than most of these tests: the first package links it into .run of
// the module, the others find it up to date.
package testbinary

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Build puts weir into a folder, under its name, built with the given
// build tags. The file is the caller's own: it stays unchanged when the sources
// change and another test builds them. Safe for concurrent use, also by several
// processes.
func Build(folder string, tags ...string) (path string, err error) {
	root := "."
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if parent, err := filepath.Abs(root); err != nil || parent == "/" {
			return "", errors.Join(errors.New("no go.mod at or above the working directory"), err)
		}
		root = filepath.Join("..", root)
	}
	if root, err = filepath.Abs(root); err != nil {
		return "", err
	}
	shared := filepath.Join(root, ".run", "weir"+strings.Join(append([]string{""}, tags...), "-"))
	if err := os.MkdirAll(filepath.Dir(shared), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(shared+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // and unlocks
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", shared, "-tags", strings.Join(tags, ","), "./cmd/pipeline")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the pipeline: %w\n%s", err, out)
	}
	path = filepath.Join(folder, "weir")
	return path, replicate(shared, path)
}

// replicate copies an executable file.
func replicate(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
