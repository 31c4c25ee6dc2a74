package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/parallel"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// Row is a row of a file that becomes an event.
type Row struct {
	Number int64  // from 1
	Value  []byte // its JSON; nil with a Reason
	Reason string
}

// Statuses of rows.
const (
	Accepted    = "accepted"
	Duplicate   = "duplicate"
	Invalid     = "invalid"
	Conflicting = "conflicting"
)

// Result is the outcome of a row.
type Result struct {
	Status string
	Reason string // without payload; empty when accepted
}

// Appender appends to the inbox in order, with all acknowledgements.
// transport.Producer is one.
type Appender interface {
	Append(ctx context.Context, records []transport.Record) error
}

// Taker ingests rows under claims, like posted events.
type Taker struct {
	Ledger store.Ledger
	Inbox  Appender
	Topic  string // of the inbox
	// Shape returns the extractor of a source. It is called for every batch, concurrently.
	Shape func(source string) (*ingest.Extractor, error)
	// Lease is how long a claim is kept from others; Keep how long it is known.
	Lease, Keep time.Duration
}

// errBusy says that another attempt has claims of these rows.
var errBusy = errors.New("other attempts at these rows are in progress")

// intake is one row on its way.
type intake struct {
	row    *Row
	event  *ingest.Prepared
	key    string
	claim  store.ClaimResult
	result *Result
}

// Take ingests the rows of one batch and returns their results, in their order: accepted
// rows are durable in the inbox. After an error the same call is repeated, by this process
// or another; rows that were accepted before are accepted again, without a second effect.
func (t *Taker) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	shape, err := t.Shape(i.Source)
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(rows))
	all := prepare(shape, i.ID, rows, results)
	if err := t.begin(ctx, i, all); err != nil {
		return nil, err
	}
	crash.At(crash.ImportClaimed, i.Source)
	var records []transport.Record
	var mine []*intake
	for _, x := range all {
		if x.result.Status != "" {
			continue
		}
		x.event.WithClaim(x.claim.ID, i.Tenant, x.key, t.Keep)
		key, head, value, err := change.EncodeRecord(x.event.Record())
		if err != nil {
			return nil, errors.Join(err, t.abandon(ctx, i, all))
		}
		mine = append(mine, x)
		records = append(records, transport.Record{
			Topic: t.Topic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}},
		})
	}
	if len(mine) == 0 {
		return results, nil
	}
	if crash.Enabled && len(records) > 1 && crash.Due(crash.ImportAppendHalf, i.Source) {
		_ = t.Inbox.Append(ctx, records[:len(records)/2])
		crash.Die()
	}
	err = t.Inbox.Append(ctx, records)
	if err == nil {
		crash.At(crash.ImportAppended, i.Source)
		err = t.complete(ctx, i, mine)
	}
	if err != nil {
		return nil, errors.Join(err, t.abandon(ctx, i, all))
	}
	crash.At(crash.ImportCompleted, i.Source)
	return results, nil
}

// prepare parses the rows; invalid ones get their results.
func prepare(shape *ingest.Extractor, job string, rows []Row, results []Result) []*intake {
	prepared := make([]*ingest.Prepared, len(rows))
	one := func(n int) {
		r := &rows[n]
		if r.Value == nil {
			results[n] = Result{Invalid, r.Reason}
			return
		}
		event, err := shape.Prepare(r.Value, nil)
		var no *ingest.Refusal
		switch {
		case errors.As(err, &no):
			results[n] = Result{Invalid, no.Code + ": " + no.Reason}
		case err != nil:
			results[n] = Result{Invalid, err.Error()}
		case event.Skipped():
			results[n] = Result{Invalid, "skipped: the event is about no entity"}
		default:
			prepared[n] = event
		}
	}
	parallel.Do(len(rows), one)
	all := make([]*intake, 0, len(rows))
	for n, event := range prepared {
		if event == nil {
			continue
		}
		x := &intake{row: &rows[n], event: event, result: &results[n]}
		if id := event.EventID(); id != "" {
			x.key = "event:" + shape.Source + ":" + id // as posted events have it
		} else {
			x.key = fmt.Sprintf("import:%s:%d", job, rows[n].Number)
		}
		all = append(all, x)
	}
	return all
}

// begin claims the keys.
func (t *Taker) begin(ctx context.Context, i store.Import, all []*intake) error {
	busy := false
	waits := func() error {
		if !busy {
			return nil
		}
		// Later rows about the same entity must not overtake blocked ones.
		return errBusy
	}
	err := store.ClaimAll(all,
		func(x *intake) store.ClaimRequest {
			return store.ClaimRequest{Key: x.key, Fingerprint: x.event.Fingerprint()}
		},
		func(intents []store.ClaimRequest) ([]store.ClaimResult, error) {
			if err := waits(); err != nil {
				return nil, err
			}
			return t.Ledger.BeginClaims(ctx, i.Tenant, intents, t.Lease, t.Keep)
		},
		func(x *intake, c store.ClaimResult) {
			x.found(i, c)
			busy = busy || c.State == store.ClaimBusy
		},
		func(x, first *intake, same bool) {
			if same {
				*x.result = Result{Duplicate, fmt.Sprintf("row %d has the same event", first.row.Number)}
			} else {
				*x.result = Result{Conflicting, fmt.Sprintf("row %d has the same event id and other content", first.row.Number)}
			}
		})
	if err == nil {
		err = waits()
	}
	if err != nil {
		return errors.Join(err, t.abandon(ctx, i, all))
	}
	return nil
}

var (
	duplicate   = Result{Duplicate, "the event was ingested before"}
	conflicting = Result{Conflicting, "another event was ingested under this event id"}
)

// found notes the claim that the ledger has under the row's key.
func (x *intake) found(i store.Import, c store.ClaimResult) {
	x.claim = c
	switch c.State {
	case store.ClaimConflict:
		*x.result = conflicting
	case store.ClaimDone:
		*x.result = x.answered(i, c.Response)
	}
}

// answered returns the result of a row whose key has a response: accepted if it is that of
// an earlier attempt at this row.
func (x *intake) answered(i store.Import, r store.Response) Result {
	var a answer
	if json.Unmarshal(r.Body, &a) == nil && a.Import == i.ID && a.Row == x.row.Number {
		return Result{Status: Accepted}
	}
	return duplicate
}

// answer is the response to a later use of the key: that of a posted event, and its origin.
type answer struct {
	ID      string `json:"id"`
	EventID string `json:"event_id,omitempty"`
	Entity  string `json:"entity"`
	Status  string `json:"status"`
	Import  string `json:"import"`
	Row     int64  `json:"row"`
}

// complete stores the answers.
func (t *Taker) complete(ctx context.Context, i store.Import, mine []*intake) error {
	done := make([]store.Completion, len(mine))
	for n, x := range mine {
		body, err := json.Marshal(answer{x.claim.ID.String(), x.event.EventID(), x.event.Entity(), Accepted, i.ID, x.row.Number})
		if err != nil {
			return err
		}
		done[n] = store.Completion{ID: x.claim.ID, Response: store.Response{Status: http.StatusAccepted, Body: append(body, '\n')}}
	}
	stored, err := t.Ledger.CompleteClaims(ctx, i.Tenant, done)
	if err != nil {
		return err
	}
	for n, x := range mine {
		// Another attempt may have answered first, under the same claim.
		*x.result = x.answered(i, stored[n])
	}
	return nil
}

// abandonTime bounds abandoning claims.
const abandonTime = 2 * time.Second

// abandon ends the leases of this attempt's claims, so that a repetition need not wait.
func (t *Taker) abandon(ctx context.Context, i store.Import, all []*intake) error {
	var ids []store.ClaimID
	for _, x := range all {
		if x.claim.State == store.ClaimStarted || x.claim.State == store.ClaimResumed {
			ids = append(ids, x.claim.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	return t.Ledger.AbandonClaims(ctx, i.Tenant, ids)
}
