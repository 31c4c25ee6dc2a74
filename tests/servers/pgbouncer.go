package servers

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PgBouncer starts a PgBouncer in transaction mode in front of a URL that Postgres returned,
// with fewer sessions than clients, and returns the URL of the same schema through it.
// settings are further lines of its configuration.
func PgBouncer(t testing.TB, target string, settings ...string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Fatal("pgbouncer is not installed: run scripts/install-servers")
	}
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	port := freePort(t)
	database := fmt.Sprintf("host=%s port=%s dbname=%s user=%s", u.Hostname(), u.Port(), strings.TrimPrefix(u.Path, "/"), u.User.Username())
	if password, _ := u.User.Password(); password != "" {
		database += " password=" + password
	}
	if schema := strings.TrimPrefix(u.Query().Get("options"), "-csearch_path="); schema != "" {
		database += fmt.Sprintf(" connect_query='set search_path to %s'", schema)
	}
	config := filepath.Join(folder, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\nweir = %s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = any\n"+
		"pool_mode = transaction\ndefault_pool_size = 6\nmax_client_conn = 200\n%s\n", database, port, strings.Join(settings, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	arguments := []string{config}
	if os.Geteuid() == 0 { // as which it does not run
		arguments = []string{"-u", "nobody", config}
	}
	command := exec.Command(program, arguments...)
	var log strings.Builder
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait()
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(log.String())
		}
	})
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for start := time.Now(); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("pgbouncer does not listen: %v", err)
		}
		select {
		case <-ended:
			t.Fatalf("pgbouncer ended: %s", log.String())
		case <-time.After(10 * time.Millisecond):
		}
	}
	return (&url.URL{Scheme: "postgres", User: url.User(u.User.Username()), Host: address, Path: "/weir", RawQuery: "sslmode=disable"}).String()
}

func freePort(t testing.TB) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
