//go:build verify && linux

package deploy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// These look at what scripts/package made; it names the folders.

// made returns the only file of a folder that matches.
func made(t *testing.T, folder, pattern string) string {
	t.Helper()
	dir := os.Getenv(folder)
	require.NotEmpty(t, dir, "run make package")
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// tree is a folder that dpkg and rpm take for a system's root.
type tree struct {
	*testing.T
	root string
}

func newTree(t *testing.T) tree {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("it needs root: packages, chroot and another user")
	}
	s := tree{t, t.TempDir()}
	require.NoError(t, os.Chmod(s.root, 0o755)) // the service's user goes in
	require.NoError(t, os.Chmod(filepath.Dir(s.root), 0o755))
	for _, dir := range []string{"dev", "etc", "tmp"} {
		require.NoError(t, os.MkdirAll(s.path(dir), 0o755))
	}
	require.NoError(t, os.Chmod(s.path("tmp"), 0o777|os.ModeSticky))
	s.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
	s.write("etc/group", "root:x:0:\n")
	return s
}

func (s tree) dpkg(args ...string) {
	s.Helper()
	command(s.T, "dpkg", append([]string{"--root=" + s.root, "--force-script-chrootless", "--force-confold", "--log=/dev/null"}, args...)...)
}

// rpm runs a package's scripts inside the tree, whose tools belong to no package.
func (s tree) rpm(args ...string) {
	s.Helper()
	out := command(s.T, "rpm", append([]string{"--root=" + s.root, "--dbpath=/var/lib/rpm", "--nodeps", "--nosignature", "--nodigest"}, args...)...)
	require.NotContains(s, out, "scriptlet failed") // rpm goes on
}

// lend copies programs of this machine into the tree, each with the libraries that it loads.
func (s tree) lend(programs ...string) {
	s.Helper()
	for _, dir := range []string{"bin", "lib", "lib64"} {
		require.NoError(s, os.MkdirAll(s.path("usr/"+dir), 0o755))
		require.NoError(s, os.Symlink("usr/"+dir, s.path(dir)))
	}
	for _, program := range programs {
		path, err := exec.LookPath(program)
		require.NoError(s, err)
		files := []string{path}
		for _, library := range regexp.MustCompile(`/\S+`).FindAllString(command(s.T, "ldd", path), -1) {
			files = append(files, strings.TrimSuffix(library, ":"))
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(s, err)
			require.NoError(s, os.MkdirAll(filepath.Dir(s.path(file)), 0o755))
			require.NoError(s, os.WriteFile(s.path(file), content, 0o755))
		}
	}
}

func (s tree) write(name, text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.path(name), []byte(text), 0o644))
}

func (s tree) path(name string) string { return filepath.Join(s.root, name) }

func (s tree) read(name string) string {
	s.Helper()
	text, err := os.ReadFile(s.path(name))
	require.NoError(s, err)
	return string(text)
}

// ids returns the user and the group that the package made.
func (s tree) ids() (user, group int) {
	s.Helper()
	m := regexp.MustCompile(`(?m)^weir:[^:]*:(\d+):(\d+):`).FindStringSubmatch(s.read("etc/passwd"))
	require.NotNil(s, m, s.read("etc/passwd"))
	_, err := fmt.Sscan(m[1]+" "+m[2], &user, &group)
	require.NoError(s, err)
	require.NotZero(s, user)
	return user, group
}

// start runs the unit's command line as its user inside the tree, as systemd would, and returns
// when it is ready; stop ends it as systemd does.
func (s tree) start() (stop func()) {
	s.Helper()
	line := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(s.read("usr/lib/systemd/system/weir.service"))
	words := strings.Fields(line[1])
	user, group := s.ids()
	var log bytes.Buffer
	cmd := exec.Command(s.path(words[0]))
	cmd.Args, cmd.Path = words, words[0] // inside the tree
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: s.root, Credential: &syscall.Credential{Uid: uint32(user), Gid: uint32(group)}}
	require.NoError(s, cmd.Start())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	if !assert.Eventually(s, func() bool {
		resp, err := client.Get("http://127.0.0.1:9600/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		require.FailNow(s, log.String())
	}
	return func() {
		require.NoError(s, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(s, cmd.Wait(), log.String())
	}
}

// post sends the event that the configuration of the package names, and waits for its delivery.
func (s tree) post(id, name string) {
	s.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}
	resp, err := client.Post("http://127.0.0.1:9601/v1/sources/events/events", "application/json", strings.NewReader(`{"id":"`+id+`","name":"`+name+`"}`))
	require.NoError(s, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	require.NoError(s, resp.Body.Close())
	require.Less(s, resp.StatusCode, 300, string(body))
	require.Eventually(s, func() bool {
		text, err := os.ReadFile(s.path("var/lib/weir/out/example.jsonl"))
		return err == nil && strings.Contains(string(text), `"doc":{"id":"`+id+`","name":"`+name+`"}`)
	}, time.Minute, 50*time.Millisecond)
}

const customer = "etc/weir/customers/example.yaml"

// use installs a package, runs its service as its own user, and upgrades it, which keeps
// changed files and state. It returns the changed text of the customer's file.
func (s tree) use(install, upgrade func()) (changed string) {
	s.Helper()
	install()
	user, _ := s.ids()
	for name, mode := range map[string]os.FileMode{"etc/weir/weir.yaml": 0o644, "etc/weir/weir.env": 0o600, "usr/bin/weir": 0o755, "var/lib/weir": 0o700} {
		info, err := os.Stat(s.path(name))
		require.NoError(s, err)
		require.Equal(s, mode, info.Mode().Perm(), name)
		owner := 0
		if name == "var/lib/weir" {
			owner = user
		}
		require.EqualValues(s, owner, info.Sys().(*syscall.Stat_t).Uid, name)
	}
	command(s.T, s.path("usr/bin/weir"), "validate", "-c", s.path("etc/weir/weir.yaml"))
	stop := s.start()
	s.post("B-007", "banana")
	stop()

	changed = strings.Replace(s.read(customer), "id: id", "id: id # ours", 1)
	s.write(customer, changed)
	upgrade()
	require.Equal(s, changed, s.read(customer), "an upgrade leaves what was changed")
	stop = s.start()
	s.post("B-008", "another")
	stop()
	require.Contains(s, s.read("var/lib/weir/out/example.jsonl"), "B-007", "what was known before")
	return changed
}

// gone checks the files that a removal left.
func (s tree) gone() {
	s.Helper()
	for _, name := range []string{"usr/bin/weir", "usr/lib/systemd/system/weir.service", "usr/lib/sysusers.d/weir.conf"} {
		require.NoFileExists(s, s.path(name))
	}
	require.DirExists(s, s.path("var/lib/weir/data"), "nobody asked to forget everything")
}

func TestDebianPackage(t *testing.T) {
	deb := made(t, "PACKAGES", "weir_*_amd64.deb")
	s := newTree(t)
	for _, dir := range []string{"var/lib/dpkg/updates", "var/lib/dpkg/info"} {
		require.NoError(t, os.MkdirAll(s.path(dir), 0o755))
	}
	s.write("var/lib/dpkg/status", "")
	s.write("var/lib/dpkg/available", "")
	s.use(func() { s.dpkg("--install", deb) }, func() { s.dpkg("--install", newer(t, deb)) })
	require.Contains(t, s.read("var/lib/dpkg/status"), "Version: 99.0.0")

	s.dpkg("--remove", "weir")
	require.FileExists(t, s.path(customer))
	s.gone()
	s.dpkg("--purge", "weir")
	require.NoFileExists(t, s.path(customer))
	s.gone()
}

// newer makes the same package with a later version.
func newer(t *testing.T, deb string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "weir")
	command(t, "dpkg-deb", "--raw-extract", deb, dir)
	control := filepath.Join(dir, "DEBIAN", "control")
	text, err := os.ReadFile(control)
	require.NoError(t, err)
	text = regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(text, []byte("Version: 99.0.0"))
	require.NoError(t, os.WriteFile(control, text, 0o644))
	out := filepath.Join(t.TempDir(), "weir.deb")
	command(t, "dpkg-deb", "-Zgzip", "-z1", "--root-owner-group", "--build", dir, out)
	return out
}

func TestRPM(t *testing.T) {
	rpm := made(t, "PACKAGES", "weir-*.x86_64.rpm")
	s := newTree(t)
	s.lend("sh", "grep", "sed", "mkdir", "chown", "chmod", "systemd-sysusers")
	changed := s.use(func() { s.rpm("--install", rpm) }, func() { s.rpm("--upgrade", newerRPM(t, rpm)) })

	s.rpm("--erase", "weir")
	require.Equal(t, changed, s.read(customer+".rpmsave"))
	s.gone()
}

// newerRPM makes the same package with a later version, of the same length: in the header, before
// the files, which are compressed.
func newerRPM(t *testing.T, rpm string) string {
	t.Helper()
	version := command(t, "rpm", "--query", "--package", "--nosignature", "--queryformat", "%{version}", rpm)
	content, err := os.ReadFile(rpm)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "weir.rpm")
	require.NoError(t, os.WriteFile(out, bytes.ReplaceAll(content, []byte(version), []byte("9"+version[1:])), 0o644))
	return out
}

// The chart renders a valid configuration.
func TestChart(t *testing.T) {
	text, err := os.ReadFile(made(t, "CHART", "chart.yaml"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "customers"), 0o755))
	var pod struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Args []string
						Env  []struct{ Name string }
					}
				}
			}
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var part map[string]any
		if err := decoder.Decode(&part); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		switch part["kind"] {
		case "ConfigMap":
			for name, content := range part["data"].(map[string]any) {
				if name != "weir.yaml" {
					name = filepath.Join("customers", name)
				}
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content.(string)), 0o600))
			}
		case "Deployment":
			again, err := yaml.Marshal(part)
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(again, &pod))
		}
	}
	given := map[string]string{}
	for _, e := range pod.Spec.Template.Spec.Containers[0].Env {
		given[e.Name] = "0123456789abcdef-" + e.Name
		if e.Name == "WEIR_STORE_URL" {
			given[e.Name] = "postgres://weir:0123456789abcdef@db/weir?sslmode=verify-full"
		}
	}
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), func(name string) (string, bool) { v, ok := given[name]; return v, ok })
	require.NoError(t, err)
	require.NoError(t, assemble.Check(c))
	require.Len(t, c.Services(), 1)
	require.Equal(t, []string{"run", "-c", "/etc/weir/weir.yaml", "--role", "ingest,work"}, pod.Spec.Template.Spec.Containers[0].Args)
}
