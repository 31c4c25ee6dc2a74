package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
)

// arrays starts an endpoint that is called with the entities of each request, whose
// signature it checks, and records them.
func arrays(t testing.TB, answer func(w http.ResponseWriter, records []record)) (s *Sink, requests *[]string) {
	requests = new([]string)
	verifier, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	ids := map[string]string{}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.NoError(t, verifier.Verify(body, r.Header), "signed as one")
		id := r.Header.Get("webhook-id")
		assert.Equal(t, id, r.Header.Get("Idempotency-Key"))
		if before, ok := ids[id]; ok {
			assert.Equal(t, before, string(body), "one id, the same bytes")
		}
		ids[id] = string(body)
		var records []record
		assert.NoError(t, json.Unmarshal(body, &records))
		var entities []string
		for _, rec := range records {
			entities = append(entities, rec.Entity)
		}
		*requests = append(*requests, strings.Join(entities, " "))
		answer(w, records)
	})
	return newSink(t, Options{URL: url, Secrets: []string{secret}, BatchMax: 100}), requests
}

// list answers with a status, and in the body with one for each change.
func list(w http.ResponseWriter, status int, records []record, of func(record) string) {
	w.WriteHeader(status)
	var elements []string
	for _, rec := range records {
		elements = append(elements, of(rec))
	}
	_, _ = w.Write([]byte("[" + strings.Join(elements, ",") + "]"))
}

func named(entity string, otherwise string, others string) func(record) string {
	return func(rec record) string {
		if rec.Entity == entity {
			return otherwise
		}
		return others
	}
}

func TestArrayIsOneRequest(t *testing.T) {
	s, requests := arrays(t, func(http.ResponseWriter, []record) {})
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2), upsert("c", 3)}))
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2), upsert("c", 3)}))
	require.Equal(t, []string{"a b c", "a b c"}, *requests)
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 4), upsert("a", 5), upsert("b", 6), upsert("a", 7)}))
	require.Equal(t, []string{"a b", "a", "a"}, (*requests)[2:], "one change of an entity in flight")
	traits := s.Traits()
	require.Equal(t, []int{100, maxBody}, []int{traits.MaxBatch, traits.MaxBytes})
}

// Each change has the class of its own status.
func TestAnswersOfSingleChanges(t *testing.T) {
	for element, want := range map[string]sinks.Class{
		`{"status":422,"error":"ripeness 2 is below 3"}`: sinks.Reject, `{"status":403}`: sinks.Reject, `{"status":404}`: sinks.Reject,
		`{"status":500}`: sinks.RetryBounded, `{"status":409}`: sinks.RetryBounded, `{"status":504}`: sinks.RetryBounded,
		`{"status":429}`: sinks.Retry, `{"status":503}`: sinks.Retry,
		`{"status":"422","error":"no such colour"}`: sinks.Reject, `{"status":"409 Conflict"}`: sinks.RetryBounded, `{"status":4.22e2}`: sinks.Reject,
	} {
		for _, status := range []int{http.StatusOK, http.StatusMultiStatus} {
			s, requests := arrays(t, func(w http.ResponseWriter, records []record) {
				w.Header().Set("Retry-After", "7")
				list(w, status, records, named("b", element, `{"status":201}`))
			})
			changes := []change.Change{upsert("a", 1), upsert("b", 2), upsert("c", 3), upsert("b", 4)}
			receipts := make([]sinks.Receipt, len(changes))
			failed := failures(t, s.Write(sinks.WithReceipts(t.Context(), receipts), changes))
			require.Equal(t, want, failed[1].Class, element)
			require.False(t, failed[1].Unreachable)
			require.Equal(t, want != sinks.Reject, failed[1].RetryAfter == 7*time.Second, "%v", failed[1])
			require.Equal(t, strings.Contains(element, "below"), strings.Contains(failed[1].Error(), `"ripeness … is below …"`), "the receiver's own reason: %v", failed[1])
			require.Equal(t, element, string(receipts[1].Answer.Body))
			require.Equal(t, 201, receipts[0].Answer.Status)
			require.Equal(t, "a b c", (*requests)[0])
			if want == sinks.Reject {
				require.Equal(t, "b", (*requests)[1], "nothing else is sent again")
				continue
			}
			require.Len(t, *requests, 1)
			require.ErrorIs(t, failed[3], sinks.ErrNotAttempted, "in order")
		}
	}
}

func failures(t testing.TB, err error) map[int]*sinks.Error {
	t.Helper()
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	failed := map[int]*sinks.Error{}
	for i, err := range be.Failed {
		failed[i] = sinks.Classify(err)
	}
	return failed
}

// A refusal of the array as a whole is that of the changes that are refused alone.
func TestRefusedArrayIsSplit(t *testing.T) {
	s, requests := arrays(t, func(w http.ResponseWriter, records []record) {
		for _, rec := range records {
			if rec.Entity == "e41" {
				w.WriteHeader(http.StatusUnprocessableEntity)
			}
		}
	})
	var changes []change.Change
	for i := range int64(100) {
		changes = append(changes, upsert(fmt.Sprint("e", i), i+1))
	}
	failed := failures(t, s.Write(t.Context(), changes))
	require.Len(t, failed, 1)
	require.Equal(t, sinks.Reject, failed[41].Class)
	require.Less(t, len(*requests), 20)
}

// A receiver that fails every time is not asked about each change.
func TestFailingReceiverIsSpared(t *testing.T) {
	s, requests := arrays(t, func(w http.ResponseWriter, _ []record) { w.WriteHeader(http.StatusInternalServerError) })
	var changes []change.Change
	for i := range int64(100) {
		changes = append(changes, upsert(fmt.Sprint("e", i), i+1))
	}
	err := s.Write(t.Context(), changes)
	require.Equal(t, sinks.RetryBounded, sinks.Classify(err).Class, "%v", err)
	require.LessOrEqual(t, len(*requests), arrayProbes+1)
}

// A limit of the body is found, and the next arrays keep it.
func TestLimitOfTheBody(t *testing.T) {
	s, requests := arrays(t, func(w http.ResponseWriter, records []record) {
		if len(records) > 30 {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	})
	var changes []change.Change
	for i := range int64(100) {
		changes = append(changes, upsert(fmt.Sprint("e", i), i+1))
	}
	require.NoError(t, s.Write(t.Context(), changes))
	before := len(*requests)
	require.NoError(t, s.Write(t.Context(), changes[:25]))
	require.Len(t, *requests, before+1)

	big := func(entity string, n int64) change.Change {
		c := upsert(entity, n)
		c.Doc = fmt.Appendf(nil, `{"text":%q}`, strings.Repeat("x", maxBody*2/3))
		return c
	}
	require.NoError(t, s.Write(t.Context(), []change.Change{big("a", 1), upsert("b", 2), big("c", 3)}))
	require.Equal(t, []string{"a b", "c"}, (*requests)[before+1:])
}

// After an outage in the middle of a Write, only unanswered changes are sent again.
func TestOutageBetweenArrays(t *testing.T) {
	calls := 0
	s, requests := arrays(t, func(w http.ResponseWriter, _ []record) {
		if calls++; calls == 2 {
			w.Header().Set("Retry-After", "3")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	changes := []change.Change{upsert("a", 1), upsert("b", 2), upsert("a", 3), upsert("a", 4)}
	failed := failures(t, s.Write(t.Context(), changes))
	require.Len(t, failed, 2)
	for _, i := range []int{2, 3} {
		require.ErrorIs(t, failed[i], sinks.ErrNotAttempted)
		require.Equal(t, 3*time.Second, failed[i].RetryAfter)
	}
	require.Equal(t, []string{"a b", "a"}, *requests)
}

func TestRefusalsOfTheWhole(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, []record){
		"status": func(w http.ResponseWriter, _ []record) { w.WriteHeader(http.StatusUnauthorized) },
		"every change": func(w http.ResponseWriter, records []record) {
			list(w, http.StatusMultiStatus, records, named("", "", `{"status":401}`))
		},
		"no list": func(w http.ResponseWriter, _ []record) { w.WriteHeader(http.StatusMultiStatus) },
		"too short": func(w http.ResponseWriter, records []record) {
			list(w, 200, records[1:], named("", "", `{"status":200}`))
		},
		"a foreign key": func(w http.ResponseWriter, records []record) {
			list(w, 207, records, named("", "", `{"key":"?","status":200}`))
		},
		"no status": func(w http.ResponseWriter, records []record) { list(w, 207, records, named("", "", `{}`)) },
		"cut off":   func(w http.ResponseWriter, _ []record) { _, _ = w.Write([]byte(`[{"status":200},{"status":2`)) },
		"answered twice": func(w http.ResponseWriter, records []record) {
			list(w, 207, records, func(record) string { return fmt.Sprintf(`{"key":%q,"status":200}`, records[0].Key) })
		},
	} {
		s, requests := arrays(t, answer)
		err := s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2)})
		var be *sinks.BatchError
		require.NotErrorAs(t, err, &be, name)
		require.Equal(t, sinks.Pause, sinks.Classify(err).Class, "%s: %v", name, err)
		require.NotEmpty(t, sinks.Classify(err).Hint, name)
		require.Len(t, *requests, 1, name)
	}
}

// A success with an acknowledgement is that of all changes.
func TestAcknowledgements(t *testing.T) {
	for _, body := range []string{
		"", " \n", "ok", "OK", "Accepted.", `"ok"`, "true", "null", "{}", `{"ok":true}`, `{"success":true,"message":"ok"}`, `{"status":"ok"}`,
		`{"status":200}`, `{"received":true}`, `{"applied":2}`, `{"accepted":2,"status":"accepted"}`,
	} {
		for _, status := range []int{200, 201, 202} {
			s, _ := arrays(t, func(w http.ResponseWriter, _ []record) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) })
			require.NoError(t, s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2)}), body)
		}
	}
}

// A success that is neither an acknowledgement nor the documented list pauses the service: it may
// say that changes were refused.
func TestUnclearAnswers(t *testing.T) {
	long := `[{"key":"?","error":"` + strings.Repeat("x", maxAnswer+2*maxItem) + `","status":200},{"status":200}]`
	for _, body := range []string{
		`[]`, `[1,2]`, `[200,422]`, `{"results":[]}`, `{"results":null}`, `[{"applied":true}`, "{", "[" + strings.Repeat("7,", maxAnswer), long, strings.Repeat(" ", maxAnswer+2*maxItem+1),
		`[{"status":"ok"},{"status":"ok"}]`, `[{"status":200},{"status":"refused"}]`, `[{"status":200},{"status":302}]`, `[{"status":200},{"status":422.5}]`, `[{"status":200},{"status":"42"}]`,
		`[{"code":200},{"code":422}]`, `{"result":[{"status":200},{"status":422}]}`, `{"errors":[{"status":422}]}`, `{"status":422}`, `{"status":"422"}`, `{"ok":false}`, `{"success":"no"}`,
		`{"failed":true}`, `{"rejected":2}`, `{"accepted":1}`, `{"ok":true,"errors":1}`, `{"error":"no such colour"}`, "1 of 2 refused", "<html>sign in</html>",
		"{\"status\":200}\n{\"status\":422}\n", "<multistatus/>", "false", "0", `"error"`,
	} {
		s, requests := arrays(t, func(w http.ResponseWriter, _ []record) { _, _ = w.Write([]byte(body)) })
		e := sinks.Classify(s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2)}))
		require.Equal(t, sinks.Pause, e.Class, "%.60s: %v", body, e)
		require.ErrorIs(t, e, errUnclear)
		require.True(t, e.Ambiguous)
		require.NotEmpty(t, e.Hint)
		require.Len(t, *requests, 1)
	}
	s, _ := arrays(t, func(w http.ResponseWriter, _ []record) { _, _ = w.Write([]byte(`{"error":"one change refused"}`)) })
	require.ErrorContains(t, s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2)}), `"one change refused"`)
}

// A request with one change has its status line as the answer, unless the body has another
// status under the change's key, or is that of a 207.
func TestStatusOfASingleChangeInTheBody(t *testing.T) {
	for answer, want := range map[string]sinks.Class{
		`200 {"key":KEY,"status":"422"}`: sinks.Reject, `200 [{"key":KEY,"status":422}]`: sinks.Reject, `202 {"results":[{"key":KEY,"status":503}]}`: sinks.Retry,
		`207 [{"status":"422 Unprocessable"}]`: sinks.Reject, `207 {"status":401}`: sinks.Pause, `207 `: sinks.Pause, `207 [{"status":200},{"status":200}]`: sinks.Pause,
		`200 {"key":KEY,"status":200}`: -1, `207 [{"status":200}]`: -1, `200 {"key":"?","status":422}`: -1, `200 {"status":422}`: -1, `200 [{"id":7}]`: -1, `200 {"key":KEY}`: -1, `200 [`: -1,
	} {
		c := upsert("a", 1)
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			status, _ := strconv.Atoi(answer[:3])
			w.WriteHeader(status)
			_, _ = w.Write([]byte(strings.ReplaceAll(answer[4:], "KEY", `"`+c.Key+`"`)))
		})
		failed, err := write(t, newSink(t, Options{URL: url}), c)
		if want == -1 {
			require.NoError(t, err, answer)
			continue
		}
		require.Error(t, err, answer)
		require.Equal(t, want, failed[0].Class, "%s: %v", answer, err)
	}
}

// An answer that breaks off may have held refusals.
func TestListThatBreaksOff(t *testing.T) {
	for _, begin := range []string{`[{"status":200},`, "", "ok"} {
		s, _ := arrays(t, func(w http.ResponseWriter, _ []record) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(begin))
			assert.NoError(t, http.NewResponseController(w).Flush())
			panic(http.ErrAbortHandler)
		})
		e := sinks.Classify(s.Write(t.Context(), []change.Change{upsert("a", 1), upsert("b", 2)}))
		require.Equal(t, sinks.Retry, e.Class)
		require.True(t, e.Ambiguous)
	}
}

// The probe has the credentials of deliveries, and reports the failure that they would have.
func TestProbe(t *testing.T) {
	for status, refused := range map[int]bool{200: false, 405: false, 501: false, 400: false, 401: true, 403: true, 404: true, 302: true, 500: true, 503: true} {
		var methods []string
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			methods = append(methods, r.Method+" "+r.Header.Get("X-Token"))
			verifier, err := standardwebhooks.NewWebhook(secret)
			assert.NoError(t, err)
			assert.NoError(t, verifier.Verify(nil, r.Header))
			w.WriteHeader(status)
		})
		c := &Config{URL: config.NewSecret(url), Secret: []config.Secret{config.NewSecret(secret)}, Headers: map[string]config.Secret{"X-Token": config.NewSecret("t")}}
		require.NoError(t, c.Ask(t.Context(), nil))
		require.Empty(t, methods, "without a probe nothing is sent")
		require.Contains(t, c.Unchecked(), "webhook.probe")
		c.Probe = http.MethodHead
		err := c.Ask(t.Context(), nil)
		require.Equal(t, []string{"HEAD t"}, methods)
		require.Equal(t, refused, err != nil, "%d: %v", status, err)
		require.Empty(t, c.Unchecked())
	}
}

// BenchmarkArrays compares requests of one change with arrays of 100, at a receiver in the
// same process.
func BenchmarkArrays(b *testing.B) {
	url := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, size := range map[string]int{"single": 0, "100": 100} {
		b.Run(name, func(b *testing.B) {
			s := newSink(b, Options{URL: url, Secrets: []string{secret}, BatchMax: size})
			var changes []change.Change
			for i := range int64(100) {
				changes = append(changes, upsert(fmt.Sprint("e", i), i+1))
			}
			for b.Loop() {
				for at := 0; at < len(changes); at += s.Traits().MaxBatch {
					require.NoError(b, s.Write(b.Context(), changes[at:min(len(changes), at+s.Traits().MaxBatch)]))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(changes)), "µs/change")
		})
	}
}
