package crash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// In a world with a door the same events come by other ways: those of registry
// are posted, those of overlay are posted as lines, those of lab are rows of
// an outbox table. Clients resume after a process died: they repeat, under
// the same keys, the requests without an answer.

// door is where clients find the process that runs now.
type door struct{ address atomic.Pointer[string] }

func (d *door) moved(to string) { d.address.Store(&to) }

func (d *door) url(path string) string { return "http://" + *d.address.Load() + path }

// errWrong is an answer that sending again does not mend.
var errWrong = errors.New("not what the door promises")

// insist tries until it succeeds, ctx ends, or the answer is wrong.
func insist(ctx context.Context, what string, try func() error) error {
	tick := time.NewTicker(harness.Poll)
	defer tick.Stop()
	for {
		err := try()
		if err == nil || errors.Is(err, errWrong) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-tick.C:
		}
	}
}

// web has a connection for each request, so that none that a killed process
// left is used again.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.Patience}

// call sends one request. An error says that there was no answer.
func (d *door) call(ctx context.Context, method, path, kind, key, body string) (status int, location string, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, d.url(path), strings.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := web.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header.Get("Location"), answer, err
}

// clients are those of all three sources. They end when everything is known to
// be taken in.
func (w *world) clients(ctx context.Context, d *door) error {
	const producers = 3
	var posted [producers][]event
	var files [2]bytes.Buffer
	var rows []event
	imported := 0
	for _, e := range events() {
		switch e.source {
		case "registry":
			n := int(e.entity[len(e.entity)-1]) % producers // one producer per entity: it has an order
			posted[n] = append(posted[n], e)
		case "overlay":
			// Members beside the payload are left out.
			fmt.Fprintf(&files[imported*2/overlays()], "%s,\"pad\":%q}\n", strings.TrimSuffix(e.json, "}"), strings.Repeat("x", 150<<10))
			imported++
		default:
			rows = append(rows, e)
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	for n, events := range posted {
		all.Go(func() error { return d.post(ctx, fmt.Sprint("producer-", n), events) })
	}
	all.Go(func() error {
		for i := range files {
			if err := d.load(ctx, files[i].String()); err != nil {
				return err
			}
		}
		return nil
	})
	all.Go(func() error { return w.apply(ctx, rows) })
	return all.Wait()
}

// overlays is how many events of overlay there are.
func overlays() (n int) {
	for _, e := range events() {
		if e.source == "overlay" {
			n++
		}
	}
	return n
}

// post posts events in their order: alone and in batches, with an
// Idempotency-Key and without one.
func (d *door) post(ctx context.Context, producer string, all []event) error {
	for n := 0; len(all) > 0; n++ {
		size := min([]int{1, 1, 2, 3}[n%4], len(all))
		path, body, key := "/v1/sources/registry/events", all[0].json, ""
		if n%4 >= 2 {
			lines := make([]string, size)
			for i, e := range all[:size] {
				lines[i] = e.json
			}
			path, body = path+":batch", "["+strings.Join(lines, ",")+"]"
		}
		if n%2 == 1 {
			key = fmt.Sprint(producer, "-", n)
		}
		all = all[size:]
		err := insist(ctx, body, func() error {
			status, _, answer, err := d.call(ctx, http.MethodPost, path, "application/json", key, body)
			switch {
			case err != nil:
				return err
			case status == http.StatusAccepted:
				return nil
			case status == http.StatusServiceUnavailable:
				return fmt.Errorf("%d %s", status, answer)
			}
			return fmt.Errorf("%w: %s: %d %s", errWrong, body, status, answer)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// load posts lines as one batch under one key until it has its answer.
func (d *door) load(ctx context.Context, lines string) error {
	key := fmt.Sprintf("%x", sha256.Sum256([]byte(lines)))
	return insist(ctx, "a batch of lines", func() error {
		status, _, answer, err := d.call(ctx, http.MethodPost, "/v1/sources/overlay/events:batch", "application/x-ndjson", key, lines)
		switch {
		case err != nil:
			return err
		case status == http.StatusAccepted:
			return nil
		case status == http.StatusServiceUnavailable:
			return fmt.Errorf("%d %s", status, answer)
		}
		return fmt.Errorf("%w: %d %s", errWrong, status, answer)
	})
}

const outboxTable = `CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	entity text, event text, payload jsonb)`

// apply is an application that writes events into its outbox table, some in a
// transaction, and one row that cannot be taken in. It waits until all are gone.
func (w *world) apply(ctx context.Context, all []event) error {
	conn, err := pgx.Connect(ctx, w.Target)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for n := 0; n < len(all); n += 6 {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			for _, e := range all[n:min(n+6, len(all))] {
				var row struct {
					EventID string `json:"event_id"`
					Op      string `json:"op"`
					Data    json.RawMessage
				}
				if err := json.Unmarshal([]byte(e.json), &row); err != nil {
					return err
				}
				payload := row.Data
				if row.Op == "delete" {
					payload = nil
				}
				if _, err := tx.Exec(ctx, "INSERT INTO outbox (entity, event, payload) VALUES ($1, $2, $3)", e.entity, row.EventID, payload); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := conn.Exec(ctx, "INSERT INTO outbox (payload) VALUES ('{}')"); err != nil {
		return err
	}
	return insist(ctx, "the outbox", func() error {
		var n int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM outbox").Scan(&n); err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		return harness.Want(n, 0)
	})
}

// serve runs the pipeline with its door open until all clients are done.
// A process that died is started again, without a plan; which it was, the
// end of the first process tells.
func (w *world) serve(crash string) end {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	d := &door{}
	log := w.Path("passings")
	first := w.StartEnv([]string{"WEIR_CRASH=" + crash, "WEIR_CRASH_LOG=" + log}, "run")
	d.moved(first.Address("ingest"))
	answered := make(chan error, 1)
	go func() { answered <- w.clients(ctx, d) }()
	select {
	case err := <-answered:
		require.NoError(w.t, err, harness.Tail(first.Log.String(), 60))
		first.Terminate()
		first.Wait()
	case <-first.Done:
		again := w.StartEnv([]string{"WEIR_CRASH=", "WEIR_CRASH_LOG="}, "run")
		d.moved(again.Address("ingest"))
		require.NoError(w.t, <-answered, harness.Tail(again.Log.String(), 60))
		again.Terminate()
		require.Zero(w.t, again.Wait(), harness.Tail(again.Log.String(), 60))
	}
	return ended(w.t, first.Cmd, log, first.Log.String())
}

// asked asks two check services about some entities, confirms every second
// answer, and returns the answers.
func (w *world) asked() []client.Answer {
	pr := w.Start("run")
	c, err := client.New(client.Options{URL: "http://" + pr.Address("ingest"), Attempts: 200, MaxBackoff: time.Second})
	require.NoError(w.t, err)
	var all []client.Answer
	for _, service := range []string{"acme/crm@check", "acme/erp@check"} {
		for n := range 6 {
			entity := fmt.Sprint("B-0", n)
			a, err := c.Service(service).Check(w.t.Context(), client.Check{Entity: entity, Payload: n, EventID: fmt.Sprint("e-", n)})
			require.NoError(w.t, err)
			if n%2 == 0 {
				require.NoError(w.t, c.Service(service).Confirm(w.t.Context(), entity, a.Version))
			}
			all = append(all, a)
		}
	}
	pr.Terminate()
	require.Zero(w.t, pr.Wait(), harness.Tail(pr.Log.String(), 60))
	return all
}

// forgotten looks whether check services answer after a reset as if they had
// never been asked, but for versions, which never go back.
func (w *world) forgotten(before []client.Answer) {
	for i, a := range w.asked() {
		require.Equal(w.t, client.Pass, a.Decision, "row %d: lost by the reset", i)
		require.False(w.t, a.Repeated, "row %d: lost by the reset", i)
		require.Greater(w.t, a.Version, before[i].Version)
	}
}
