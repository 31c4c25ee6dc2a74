package docs

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// A session follows a page, or a recipe of one: a folder with the
// examples, files written as the page shows them, commands typed in their order.
type session struct {
	t   *testing.T
	dir string
	env []string
	// ports has a free one for each that the page shows, so that pages can be
	// followed side by side.
	ports      map[string]string
	shown      map[string]bool // files that the page has shown
	background []*process
}

type process struct {
	cmd    *exec.Cmd
	output *bytes.Buffer
	ended  chan struct{}
}

// shownPort is a port of a listener in a command, a file or an output.
var shownPort = regexp.MustCompile(`(127\.0\.0\.1:|PORT=)(9600|9601|8700)\b`)

func newSession(t *testing.T, env ...string) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), env: env, ports: map[string]string{}, shown: map[string]bool{}}
	for _, folder := range []string{"examples", "testdata/golden", "scripts", "deploy"} {
		require.NoError(t, os.CopyFS(filepath.Join(s.dir, folder), os.DirFS(filepath.Join(root, folder))))
	}
	t.Cleanup(s.end)
	return s
}

// real puts free ports in the place of those that a page shows.
func (s *session) real(text string) string {
	return shownPort.ReplaceAllStringFunc(text, func(m string) string {
		part := shownPort.FindStringSubmatch(m)
		if s.ports[part[2]] == "" {
			_, s.ports[part[2]], _ = net.SplitHostPort(harness.FreeAddress(s.t))
		}
		return part[1] + s.ports[part[2]]
	})
}

// fileName is the comment that a shown file begins with.
var fileName = regexp.MustCompile(`^(?:#|//) ([\w./-]+\.(?:yaml|txt))\n`)

// write puts a shown configuration where its first line says. A main file that
// does not speak of the operators' listener gets a port of its own.
func (s *session) write(b block) {
	name := fileName.FindStringSubmatch(b.text)
	if b.info != "yaml" || name == nil {
		return
	}
	text := strings.NewReplacer(s.realServers()...).Replace(s.real(b.text))
	if strings.Contains(text, "\nsources:") && !strings.Contains(text, "\nadmin:") {
		text += "admin: {listen: \"127.0.0.1:0\"}\n"
	}
	path := filepath.Join(s.dir, name[1])
	if made, err := os.ReadFile(path); err == nil && !s.shown[path] {
		require.Equal(s.t, uncommented(b.text), uncommented(string(made)), "%s is not as the page shows it", name[1])
	}
	s.shown[path] = true
	require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o644))
}

// comment is one of a file of YAML that holds no # in its values.
var comment = regexp.MustCompile(`(?m) *#.*$`)

// uncommented is a file without comments and empty lines.
func uncommented(text string) string {
	return strings.Join(strings.FieldsFunc(comment.ReplaceAllString(text, ""), func(r rune) bool { return r == '\n' }), "\n")
}

// realServers are the names that pages show for brokers and topics, each followed by
// that of the test.
func (s *session) realServers() (pairs []string) {
	for _, v := range s.env {
		if brokers, ok := strings.CutPrefix(v, "KAFKA="); ok {
			pairs = append(pairs, "127.0.0.1:9092", brokers)
		}
		if topics, ok := strings.CutPrefix(v, "TOPICS="); ok {
			pairs = append(pairs, "shop.bananas", topics+".bananas", "shop.downstream", topics+".downstream")
		}
	}
	return pairs
}

// run types one line. A line that ends in " &" runs until the session ends; a
// line that names a port waits until such a process listens there.
func (s *session) run(line string) (output string, ok bool) {
	s.t.Helper()
	line = s.real(line)
	if inBackground, is := strings.CutSuffix(line, " &"); is {
		s.start(inBackground)
		return "", true
	}
	for _, port := range s.ports {
		if len(s.background) > 0 && strings.Contains(line, "127.0.0.1:"+port) {
			s.awaitPort(port)
		}
	}
	return shellIn(s.t, s.dir, s.env, line)
}

func (s *session) start(line string) {
	s.t.Helper()
	p := &process{cmd: exec.Command("bash", "-c", "exec env "+line), output: &bytes.Buffer{}, ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = s.dir, environment(s.env)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(s.t, p.cmd.Start(), line)
	s.background = append(s.background, p)
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
}

func (s *session) awaitPort(port string) {
	s.t.Helper()
	harness.Eventually(s.t, "somebody listens on "+port, func() error {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err != nil {
			for _, p := range s.background {
				select {
				case <-p.ended:
					s.t.Fatalf("%s ended: %s", p.cmd, p.output)
				default:
				}
			}
			return err
		}
		return c.Close()
	})
}

// end stops what runs in the background, the latest first.
func (s *session) end() {
	for i := len(s.background) - 1; i >= 0; i-- {
		p := s.background[i]
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		late := time.AfterFunc(time.Minute, func() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
		<-p.ended
		late.Stop()
		if s.t.Failed() {
			fmt.Printf("%s printed:\n%s\n", p.cmd, p.output)
		}
	}
}
