package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
)

// result is the receiver's answer to one change.
type result struct {
	status int
	body   []byte // the beginning of its element
	said   string
}

var (
	errUnclear = errors.New("the receiver's answer does not say which changes it took")
	errBroken  = errors.New("the receiver's answer is incomplete")
)

// results returns the answers to the single rows, none if all were taken, or the failure of all.
// An answer in no known form is never a success: it may name refused changes.
func (a *answer) results(rows []batch.Row) ([]result, *sinks.Error) {
	status := a.receipt.Answer.Status
	switch {
	case a.err != nil && status == http.StatusRequestEntityTooLarge:
		return nil, batch.TooMuch(a.err)
	case a.err != nil:
		return nil, a.err
	case a.broken:
		return nil, &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "post", Err: errBroken}
	}
	text := bytes.TrimSpace(bytes.TrimPrefix(a.body, []byte("\ufeff")))
	if !a.cut {
		if status != http.StatusMultiStatus && acknowledges(text, len(rows)) {
			return nil, nil
		}
		if results := listed(text, rows); results != nil {
			return results, nil
		}
	}
	e := &sinks.Error{Class: sinks.Pause, Ambiguous: true, Op: "post", Err: errUnclear,
		Hint: "answer without a body, or with a status for each change, in their order or by key"}
	if a.cut {
		e.Err = fmt.Errorf("%w in its first %d bytes", errUnclear, len(a.body))
	} else if words := a.mask(said(text)); words != "" {
		e.Err = fmt.Errorf("%w: %q", errUnclear, words)
	}
	return nil, e
}

// ofChange returns the outcome of a request with one change that was answered with 2xx. The
// status line is the answer, unless it is 207 or the body has a status under the change's key.
func (a *answer) ofChange(row batch.Row) failure {
	rows := []batch.Row{row}
	var results []result
	if a.receipt.Answer.Status == http.StatusMultiStatus {
		var e *sinks.Error
		if results, e = a.results(rows); e != nil {
			return failure{err: e, halt: e.Class == sinks.Pause}
		}
	} else if !a.cut && !a.broken && bytes.Contains(a.body, []byte(row.Key)) {
		results = listed(bytes.TrimSpace(a.body), rows)
	}
	if len(results) == 0 {
		return failure{}
	}
	a.receipt.Answer = sinks.Answer{Status: results[0].status, Body: results[0].body}
	return statusFailure(results[0].status, a.wait, a.mask(results[0].words()))
}

// listed returns the answers to rows in a list of the documented form, nil if the text is none.
func listed(text []byte, rows []batch.Row) []result {
	if !gjson.ValidBytes(text) {
		return nil
	}
	list := gjson.ParseBytes(text)
	elements := []gjson.Result{list}
	switch {
	case list.IsArray():
		elements = list.Array()
	case list.Get("results").IsArray():
		elements = list.Get("results").Array()
	}
	if len(elements) != len(rows) {
		return nil
	}
	results, places := make([]result, len(rows)), make(map[string]int, len(rows))
	for i, r := range rows {
		places[r.Key] = i
	}
	for i, one := range elements {
		known, status := true, statusOf(one)
		if key := one.Get("key"); key.Exists() {
			i, known = places[key.Str]
		}
		if !known || status == 0 || results[i].status != 0 {
			return nil
		}
		results[i] = result{status, []byte(one.Raw[:min(len(one.Raw), sinks.MaxAnswer)]), said([]byte(one.Raw))}
	}
	return results
}

// words is the receiver's reason, empty if the answer has a status alone.
func (r result) words() string {
	if strings.HasPrefix(r.said, "{") {
		return ""
	}
	return r.said
}

// statusText is a status that was written as a text, with or without its name.
var statusText = regexp.MustCompile(`^([245]\d\d)( .*)?$`)

// statusOf returns an element's status, 0 without a status of success or failure.
func statusOf(one gjson.Result) int {
	status := one.Get("status")
	text := status.Str
	if status.Type == gjson.Number && status.Num == float64(int(status.Num)) {
		text = strconv.Itoa(int(status.Num))
	}
	m := statusText.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // digits by the pattern
	return n
}

var (
	yes = regexp.MustCompile(`(?i)^"?(ok(ay)?|success(ful)?|accepted|received|created|processed|done|true|thanks)"?[.!]?$`)
	// saysYes and counts are the members with which frameworks and tutorials acknowledge.
	saysYes = regexp.MustCompile(`(?i)^(ok|success|status|code|message|result|received|accepted|acknowledged|applied)$`)
	counts  = regexp.MustCompile(`(?i)^(received|accepted|applied|count)$`)
)

// acknowledges reports whether the body of a success says no more than that: nothing, a word, or
// an object that has nothing but members like {"ok":true} and {"accepted":n}.
func acknowledges(text []byte, n int) bool {
	if len(text) == 0 || string(text) == "null" || yes.Match(text) {
		return true
	}
	v := gjson.ParseBytes(text)
	if !gjson.ValidBytes(text) || !v.IsObject() {
		return false
	}
	all := true
	v.ForEach(func(name, member gjson.Result) bool {
		says := saysYes.MatchString(name.Str) &&
			(member.Type == gjson.True || member.Type == gjson.String && yes.MatchString(member.Str) || member.Type == gjson.Number && member.Num >= 200 && member.Num < 300)
		if counts.MatchString(name.Str) && member.Type == gjson.Number {
			says = member.Num == float64(n)
		}
		all = all && says
		return all
	})
	return all
}
