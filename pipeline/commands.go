package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/operate"
)

// Command is a command line that another process asks this one to run, because
// this one has the data folder open.
type Command struct {
	Args     []string `json:"args"`
	Stdin    []byte   `json:"stdin,omitempty"`
	Terminal bool     `json:"terminal,omitempty"` // its standard error is a terminal
	Actor    string   `json:"actor"`              // user@host, for the audit
}

// Executor runs a command in this process and gives its exit status. tools makes
// the environment that it works with. It returns soon after ctx is cancelled.
type Executor func(ctx context.Context, c Command, tools func(context.Context) (*operate.Env, error), out, err io.Writer) int

// Frame is one line of the answer: a piece of an output, or the end.
type Frame struct {
	Out  []byte `json:"out,omitempty"`
	Err  []byte `json:"err,omitempty"`
	Exit *int   `json:"exit,omitempty"`
}

const (
	commandsPath = "/v1/commands"
	reloadPath   = "/v1/reload"
	// reloadTimeout bounds a reload.
	reloadTimeout = time.Minute
	// maxCommand bounds a command with its standard input, in bytes.
	maxCommand = 64 << 20
	// controlSuffix names the file beside the SQLite file with the logs that says how
	// to reach the process that has it open.
	controlSuffix = ".control"
)

// control is what such a file holds.
type control struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	PID     int    `json:"pid"`
}

// commands serves commands of other processes.
type commands struct {
	token string // this process's own; random
	file  string // where it is written; empty with servers

	ctx    context.Context // ends them
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool           // guarded by mu
	active sync.WaitGroup // grows under mu and only while not closed
}

func newCommands() *commands {
	c := &commands{}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// begin counts a command in; false when the process ends.
func (c *commands) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.active.Add(1)
	return true
}

// end cancels what runs and waits for it. It may be called twice.
func (c *commands) end() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.active.Wait()
	if c.file == "" {
		return nil
	}
	if err := os.Remove(c.file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// announce writes how this process is reached, readable by its user alone.
func (p *Pipeline) announce(address net.Addr) error {
	if !IsEmbedded(p.cfg) {
		return nil
	}
	p.commands.file = controlPath(p.cfg)
	text, err := json.Marshal(control{Address: dialable(address.String()), Token: p.commands.token, PID: os.Getpid()})
	if err != nil {
		return err
	}
	// Whole or not at all: a reader must not see half of it.
	temporary := p.commands.file + ".new"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, p.commands.file)
}

// dialable gives the address to connect to for one that is listened on.
func dialable(listening string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// serveCommand answers POST /v1/commands: it runs a command and streams its
// outputs as lines of JSON (Frame), the exit status last. There is always a
// token, and the content type keeps forms of web pages out.
func (p *Pipeline) serveCommand(w http.ResponseWriter, r *http.Request) {
	if !p.mayCommand(w, r) {
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		http.Error(w, "the content type must be application/json", http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommand))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		http.Error(w, fmt.Sprintf("the command is larger than %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		http.Error(w, "the request broke off", http.StatusBadRequest)
		return
	}
	var c Command
	if err := json.Unmarshal(body, &c); err != nil || len(c.Args) == 0 {
		http.Error(w, "the body is no command", http.StatusBadRequest)
		return
	}
	// The listener's limit is for requests; a command may take as long as it does,
	// and the deadline would end it as if its caller had gone.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if !p.commands.begin() {
		http.Error(w, "the process is ending", http.StatusServiceUnavailable)
		return
	}
	defer p.commands.active.Done()
	// The caller's connection and this process's end both end the command.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(p.commands.ctx, cancel)()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	// The caller hears at once that it was understood, whenever the first output comes.
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	frames := &frames{w: w}
	status := p.opt.Commands(ctx, c, p.Tools, frameWriter{frames, false}, frameWriter{frames, true})
	frames.send(Frame{Exit: &status})
}

// mayCommand tells whether a request has one of the tokens, and answers it if not.
func (p *Pipeline) mayCommand(w http.ResponseWriter, r *http.Request) bool {
	return p.attempts.Admit(w, r, p.commands.token, p.cfg.Admin.Token.Reveal())
}

// serveReload answers POST /v1/reload: a Reloaded as JSON, or a text and the
// status 422 when the configuration is refused. With ?activate=true an earlier
// configuration may replace the active one.
func (p *Pipeline) serveReload(w http.ResponseWriter, r *http.Request) {
	if !p.mayCommand(w, r) {
		return
	}
	// It goes on when the caller goes away: half of a reload helps nobody.
	done, err := p.Reload(context.WithoutCancel(r.Context()), r.URL.Query().Get("activate") == "true")
	var refused *ReloadRefused
	switch {
	case errors.As(err, &refused):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(done) // a caller that went away does not matter
	}
}

// frames writes an answer, one frame at a time.
type frames struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (f *frames) send(x Frame) {
	text, err := json.Marshal(x)
	if err != nil {
		return // bytes and a number always have a JSON form
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	// A caller that went away is noticed by the request's context.
	_, _ = f.w.Write(append(text, '\n'))
	_ = http.NewResponseController(f.w).Flush()
}

// frameWriter is one of the outputs of a command.
type frameWriter struct {
	to  *frames
	err bool
}

func (w frameWriter) Write(b []byte) (int, error) {
	if w.err {
		w.to.send(Frame{Err: b})
	} else {
		w.to.send(Frame{Out: b})
	}
	return len(b), nil
}

func randomToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
