package page

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// letterSection serves dead letters.
type letterSection struct{ *Page }

const (
	pageLetters = 50
	maxShown    = 64 << 10 // of a payload, in bytes
	maxRefused  = 100      // that are listed one by one
	maxReason   = 500
	foldGroups  = 8 // groups of letters that are shown at once
)

var (
	stages = []string{"", "ingest", "decide", "deliver"}
	states = []string{"open", "replayed", "obsolete", "discarded", "all"}
)

// filter narrows the list of letters, as text of a form.
type filter struct {
	Stage, State, Source, Service, Entity, Code, By string
	After                                           int64
}

func filterOf(v url.Values) (filter, error) {
	f := filter{
		Stage: v.Get("stage"), State: v.Get("state"), Source: v.Get("source"), Service: v.Get("service"), Entity: v.Get("entity"), Code: v.Get("code"), By: v.Get("by"),
	}
	if f.State == "" {
		f.State = "open"
	}
	if !slices.Contains(stages, f.Stage) || !slices.Contains(states, f.State) {
		return f, operate.Invalid("There is no such stage or state.")
	}
	if after := v.Get("after"); after != "" {
		var err error
		if f.After, err = strconv.ParseInt(after, 10, 64); err != nil || f.After < 0 {
			return f, operate.Invalid("There is no such page.")
		}
	}
	return f, nil
}

// wanted returns the filter of the store, without its page.
func (p letterSection) wanted(f filter) store.LetterFilter {
	s := store.LetterFilter{Stage: store.Stage(f.Stage), Source: f.Source, Service: p.opt.Config().FirstName(f.Service), Entity: f.Entity, Code: f.Code}
	if f.State != "all" {
		s.State = store.LetterState(f.State)
	}
	return s
}

// Query returns the filter as part of an address.
func (f filter) Query(after int64) string {
	return query("stage", f.Stage, "state", f.State, "source", f.Source, "service", f.Service, "entity", f.Entity, "code", f.Code, "by", f.By, "after", strconv.FormatInt(after, 10))
}

type lettersBody struct {
	Filter   filter
	Stages   []string
	States   []string
	Services []string
	Sources  []string
	Letters  []store.DeadLetter
	Next     string              // address of the next page
	Codes    []string            // of open dead letters
	Groups   []store.LetterGroup // the largest
	Rest     []store.LetterGroup // folded away
	Other    string              // address of the other grouping
	LastJob  *jobBody
}

func (p letterSection) list(r *http.Request) (view, error) {
	f, err := filterOf(r.URL.Query())
	if err != nil {
		return view{}, err
	}
	wanted := p.wanted(f)
	wanted.NewestFirst, wanted.AfterID, wanted.Limit = true, f.After, pageLetters
	found, err := p.opt.Store.ListLetters(r.Context(), wanted)
	if err != nil {
		return view{}, err
	}
	b := lettersBody{Filter: f, Stages: stages, States: states, Letters: found, LastJob: p.lastJob(jobLetters)}
	b.Services, b.Sources = p.suggestions(), p.sourceNames()
	if len(found) == pageLetters {
		b.Next = "/letters?" + f.Query(found[len(found)-1].ID)
	}
	grouped := p.wanted(f)
	grouped.Code, grouped.ByEntity = "", f.By == "entity" // other codes can be chosen
	other := f
	if other.By = "entity"; f.By == "entity" {
		other.By = ""
	}
	b.Other = "/letters?" + other.Query(0)
	if b.Groups, err = p.opt.Store.GroupLetters(r.Context(), grouped, maxGroups); err != nil {
		return view{}, err
	}
	for _, g := range b.Groups {
		if !slices.Contains(b.Codes, g.Code) {
			b.Codes = append(b.Codes, g.Code)
		}
	}
	if f.Code != "" && !slices.Contains(b.Codes, f.Code) {
		b.Codes = append(b.Codes, f.Code)
	}
	slices.Sort(b.Codes)
	if len(b.Groups) > foldGroups {
		b.Groups, b.Rest = b.Groups[:foldGroups], b.Groups[foldGroups:]
	}
	return view{Title: "Dead letters", Section: "/letters", Body: b}, nil
}

type letterBody struct {
	Letter  store.DeadLetter
	Text    string // of the payload, when it is one
	Hex     string // else
	Cut     bool   // the payload is longer than the shown part
	Headers string
}

// isText reports whether a text field returns a payload unchanged, except for newlines, which
// browsers rewrite.
func isText(b []byte) bool {
	return utf8.Valid(b) && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' && c != '\t' && c != '\n' || c == 0x7F })
}

// find returns the dead letter that a request names.
func (p letterSection) find(r *http.Request) (store.DeadLetter, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id <= 0 {
		return store.DeadLetter{}, store.ErrNotFound
	}
	return p.opt.Store.Letter(r.Context(), id)
}

func (p letterSection) view(r *http.Request) (view, error) {
	l, err := p.find(r)
	if err != nil {
		return view{}, err
	}
	b := letterBody{Letter: l, Headers: string(l.Headers)}
	shown := l.Payload[:min(len(l.Payload), maxShown)]
	b.Cut = len(shown) < len(l.Payload)
	if isText(l.Payload) {
		b.Text = strings.ToValidUTF8(string(shown), "") // a cut may go through a character
	} else {
		b.Hex = hex.Dump(shown[:min(len(shown), maxShown/4)])
		b.Cut = len(l.Payload) > maxShown/4
	}
	return view{Title: fmt.Sprintf("Dead letter %d", l.ID), Section: "/letters", Body: b}, nil
}

// payload returns the bytes as they are, to be saved and never shown.
func (p letterSection) payload(w http.ResponseWriter, r *http.Request, _ *session) error {
	l, err := p.find(r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="letter-%d"`, l.ID))
	_, _ = w.Write(l.Payload)
	return nil
}

// reason returns the reason of an action for the audit.
func reason(r *http.Request) (string, error) {
	s := strings.TrimSpace(r.PostForm.Get("reason"))
	if utf8.RuneCountInString(s) > maxReason || !isText([]byte(s)) {
		return "", operate.Invalid("A reason is text of at most %d characters.", maxReason)
	}
	return s, nil
}

type resultBody struct {
	Verb    string // replayed or discarded
	Done    int
	Ways    []string // how, with numbers
	Refused []operate.LetterReplay
	More    int // refused, not listed
	Back    string
}

type confirmBody struct {
	Do, Verb string
	N        int64
	Filter   filter
	Reason   string
}

// act replays or discards letters: those that are ticked, or, after a
// question, all open ones that the filters leave.
func (p letterSection) act(w http.ResponseWriter, r *http.Request, who *session) error {
	f, err := filterOf(r.PostForm)
	var why string
	if err == nil {
		why, err = reason(r)
	}
	if err != nil {
		return err
	}
	action, all := strings.CutSuffix(r.PostForm.Get("do"), "-all")
	if action != "replay" && action != "discard" {
		return errNoAction
	}
	selected := operate.Letters{Filter: p.wanted(f)}
	if !all {
		for _, text := range r.PostForm["id"] {
			id, err := strconv.ParseInt(text, 10, 64)
			if err != nil || id <= 0 {
				return refusal(http.StatusBadRequest, "There is no such dead letter.")
			}
			selected.IDs = append(selected.IDs, id)
		}
		if len(selected.IDs) == 0 {
			return refusal(http.StatusBadRequest, "Tick at least one letter.")
		}
	} else if r.PostForm.Get("sure") != "yes" {
		n, err := operate.CountLetters(r.Context(), p.opt.Store, selected)
		if err == nil {
			p.show(w, http.StatusOK, "confirm", view{Title: "Are you sure?", Section: "/letters", Session: who,
				Body: confirmBody{Do: action + "-all", Verb: action, N: int64(n), Filter: f, Reason: why}})
		}
		return err
	}
	return p.run(w, r, who, jobLetters, "Dead letters are being "+action+"ed", func(ctx context.Context, j *job) (outcome, error) {
		b := resultBody{Verb: action + "ed", Back: "/letters?" + f.Query(0)}
		act := p.discard
		if action == "replay" {
			act = p.replay
		}
		if err := act(ctx, j, who, selected, why, &b); err != nil {
			return outcome{}, err
		}
		return outcome{"result", view{Title: "Done", Section: "/letters", Body: b}}, nil
	})
}

func (p letterSection) replay(ctx context.Context, j *job, who *session, selected operate.Letters, why string, b *resultBody) error {
	env, err := p.env(ctx, who)
	if err != nil {
		return err
	}
	env.Progress = j.progress
	ways := map[operate.ReplayMode]int{}
	err = env.ReplayLetters(ctx, selected, why, false, func(l operate.LetterReplay) {
		switch {
		case l.Refused == "":
			b.Done++
			ways[l.Way]++
		case len(b.Refused) < maxRefused:
			b.Refused = append(b.Refused, l)
		default:
			b.More++
		}
	})
	for _, way := range []operate.ReplayMode{operate.AsEvent, operate.AsDecision, operate.AsChange} {
		if n := ways[way]; n > 0 {
			b.Ways = append(b.Ways, fmt.Sprintf("%d: %s", n, way.Words()))
		}
	}
	return err
}

func (p letterSection) discard(ctx context.Context, j *job, who *session, selected operate.Letters, why string, b *resultBody) (err error) {
	b.Done, b.More, err = operate.DiscardLetters(ctx, p.opt.Store, selected, who.Actor, why, j.progress)
	return err
}
