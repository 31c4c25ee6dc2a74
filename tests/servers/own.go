package servers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// ownTimeout bounds one command of scripts/servers, which itself allows a server four minutes to start
// and four to end.
const ownTimeout = 10 * time.Minute

// variables says by which variable a server makes itself known.
func variables() map[string]string {
	return map[string]string{
		"postgres":   "WEIR_TEST_POSTGRES_URL",
		"valkey":     "WEIR_TEST_VALKEY_ADDR",
		"kafka":      "WEIR_TEST_KAFKA_BROKERS",
		"clickhouse": "WEIR_TEST_CLICKHOUSE_NATIVE_ADDR",
		"chdb":       "WEIR_TEST_CLICKHOUSE_HTTP_URL",
	}
}

// Server is a private instance of one server, for a test that stops, kills or pauses it. It keeps its
// port and its data from one Start to the next. Its methods may be called from any goroutine, one at a
// time; each returns when the server is in the wanted state, and fails the test when it cannot get
// there.
type Server struct {
	t      testing.TB
	name   string
	script string
	folder string
	env    []string // of the script, beside what this process has

	// Address is where it listens: a URL for postgres (superuser, database postgres) and chdb
	// (http://host:port), host:port for valkey, kafka and clickhouse.
	Address string
}

// StartOwn starts an empty instance of "postgres", "valkey", "kafka", "clickhouse" or "chdb" for this
// test alone and removes it after the test. PostgreSQL takes about two seconds, Kafka about six and
// some 400 MB of memory, the others less than one second.
func StartOwn(t testing.TB, name string) *Server {
	t.Helper()
	return startOwn(t, name)
}

// StartOwnPostgres is StartOwn of a PostgreSQL of a major version: "17", "18", or "" for Debian's.
func StartOwnPostgres(t testing.TB, version string) *Server {
	t.Helper()
	return startOwn(t, "postgres", "WEIR_POSTGRES_VERSION="+version)
}

// StartStandby starts a hot standby of a private PostgreSQL. SELECT pg_promote() promotes it.
func StartStandby(t testing.TB, primary *Server) *Server {
	t.Helper()
	return startOwn(t, "postgres", "WEIR_POSTGRES_PRIMARY="+primary.Address)
}

// StartOwnKafkaBehindProxy is StartOwn of a Kafka that has a second listener, for clients whose
// connections a test disturbs. Kafka listens at upstream there and tells those clients to come to
// advertised, on which the test's proxy is to listen; that port stays reserved. Clients that start
// at Address know nothing of all this.
func StartOwnKafkaBehindProxy(t testing.TB) (s *Server, upstream, advertised string) {
	t.Helper()
	s = startOwn(t, "kafka", "WEIR_KAFKA_PROXIED=1")
	return s, s.value("WEIR_TEST_KAFKA_PROXIED"), s.value("WEIR_TEST_KAFKA_ADVERTISED")
}

func startOwn(t testing.TB, name string, env ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real server")
	}
	if _, known := variables()[name]; !known {
		t.Fatalf("no server is called %q", name)
	}
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's own temporary folder: scripts/servers must find it should this process be killed.
	parent := filepath.Join(root, ".run", "own")
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp(parent, fmt.Sprintf("%d-%s-", os.Getpid(), name)) //nolint:usetesting // where scripts/servers finds what a killed test left
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, name: name, script: filepath.Join(root, "scripts", "servers"), folder: folder, env: env}
	t.Cleanup(func() {
		if t.Failed() {
			s.printLog()
		}
		if output, err := s.command("clean"); err != nil {
			t.Errorf("clean up %s: %v\n%s", name, err, output)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	s.must("start")
	s.Address = s.address()
	return s
}

// Start starts it where it was stopped or killed, and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.must("start")
	if now := s.address(); now != s.Address {
		s.t.Fatalf("somebody else took the port of %s: it was at %s and is at %s", s.name, s.Address, now)
	}
}

// Stop ends it in its orderly way.
func (s *Server) Stop() { s.t.Helper(); s.must("stop") }

// Kill ends it and its children with SIGKILL.
func (s *Server) Kill() { s.t.Helper(); s.must("kill") }

// Quit is PostgreSQL's immediate shutdown: no client is waited for and nothing is written down, so
// that the next Start recovers from the log. No other server has one.
func (s *Server) Quit() { s.t.Helper(); s.must("quit") }

// Pause stops the server (SIGSTOP), connections stay open; Resume continues it.
func (s *Server) Pause() { s.t.Helper(); s.must("pause") }

// Resume ends a Pause.
func (s *Server) Resume() { s.t.Helper(); s.must("resume") }

func (s *Server) address() string {
	s.t.Helper()
	return s.value(variables()[s.name])
}

// value is the server's value of a variable.
func (s *Server) value(variable string) string {
	s.t.Helper()
	environment, err := os.ReadFile(filepath.Join(s.folder, "env"))
	if err != nil {
		s.t.Fatal(err)
	}
	return valueIn(string(environment), variable)
}

func (s *Server) must(action string) {
	s.t.Helper()
	if output, err := s.command(action, s.name); err != nil {
		s.t.Fatalf("%s %s: %v\n%s", action, s.name, err, output)
	}
}

func (s *Server) command(arguments ...string) (output string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, s.script, arguments...)
	command.Env = append(append(os.Environ(), "WEIR_RUN="+s.folder), s.env...)
	combined, err := command.CombinedOutput()
	return strings.TrimSpace(string(combined)), err
}

// printLog shows the end of the server's log beside the failure of its test.
func (s *Server) printLog() {
	const lines = 40
	log, err := os.ReadFile(filepath.Join(s.folder, "log", s.name+".log"))
	if err != nil {
		s.t.Log(fmt.Errorf("no log of %s: %w", s.name, err))
		return
	}
	all := strings.Split(strings.TrimSpace(string(log)), "\n")
	s.t.Logf("the last lines of %s:\n%s", s.name, strings.Join(all[max(0, len(all)-lines):], "\n"))
}
