package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate/remedy"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// outcomeOf returns the outcome of an event for a service.
func (s *report) outcomeOf(i int, c config.Service, out *Service, row store.Row) string {
	sent := out.Last != nil
	e := s.Events[i]
	for _, l := range s.letters {
		if l.Service == c.Name && uint64(l.Version) == e.version {
			return "dead letter"
		}
	}
	if sent && uint64(row.Version) == e.version && row.Content != nil {
		switch {
		case row.Refused:
			return "refused"
		case out.Last.Delivered:
			return "delivered"
		}
		return "sent"
	}
	if e.Action == "" && e.Outcome != decide.HistoryMerged && e.Outcome != decide.HistoryIncomplete {
		word, _, _ := strings.Cut(e.Outcome, ":")
		return word
	}
	if e.Record != nil && len(e.Record.Services) > 0 && !slices.Contains(e.Record.Services, c.Name) {
		return "-" // it was about others
	}
	service := slices.IndexFunc(s.plan.Services, func(p decide.Service) bool { return p.Name == c.Name })
	switch decision := s.inspection.History.Decided(s.plan, e.entry, service); {
	case decision != "":
		return strings.ReplaceAll(decision, "_", " ")
	case e.Action != "":
		return e.Action
	}
	if !s.Current || s.active == 0 {
		return "other revision"
	}
	return fmt.Sprintf("before revision %d", s.active)
}

// verdict sets verdict and sentence of a service. newest is its newest open dead
// letter, nil without one.
func (s *report) verdict(out *Service, c config.Service, row store.Row, sent bool, newest *store.DeadLetter) {
	say := func(v Verdict, format string, args ...any) {
		out.Verdict, out.Why = v, fmt.Sprintf(format, args...)+"."
	}
	switch {
	case s.inspection.MergeError != nil:
		say(Undecidable, "Nothing can be decided: the source documents do not merge")
		return
	case row.Refused && newest != nil && newest.Version >= row.Version:
		say(Refused, "Its newest change is dead letter %d (%s: %s%s), so the customer does not have it: it is held back until the view changes, or the letter is replayed, or the service is reset%s",
			newest.ID, newest.Code, newest.Reason, times(newest), s.pendingText(out))
		return
	case row.Refused:
		say(Refused, "Version %s was refused, and no dead letter of it is open any more: it is held back until the view changes, or weir replay %s --service %s --force sends it, or the service is reset%s", row.Version, remedy.Word(s.Entity), out.Service, s.pendingText(out))
		return
	case newest != nil && (!sent || newest.Version >= row.Version):
		say(Refused, "Its newest change is dead letter %d (%s: %s%s), so the customer does not have it",
			newest.ID, newest.Code, newest.Reason, times(newest))
		return
	case out.Fault != "":
		say(Undecidable, "The projection fails on this document (%s), so nothing new is sent; %s", out.Fault, has(out, row))
		return
	case !sent:
		s.neverSent(out, say)
		return
	case row.Content == nil:
		say(Unknown, "A reset set the customer's content to unknown after version %s, so the next decision is sent", row.Version)
		return
	case out.Queued && out.Paused == "" && out.Waits == "" && c.Delivery.Pace.String() != "":
		say(Paced, "%s changed this view, and the change with version %s is sent by the service's pace (%s)%s; %s",
			s.cause(uint64(row.Version)), row.Version, c.Delivery.Pace, s.pendingText(out), progressText(out))
		return
	case out.Queued:
		say(Queued, "%s changed this view, and the change with version %s is queued%s; %s",
			s.cause(uint64(row.Version)), row.Version, s.pendingText(out), cmp.Or(out.Paused, out.Waits, progressText(out)))
		return
	}
	s.delivered(out, c, row, say)
}

// times says how often a letter died, if more than once.
func times(l *store.DeadLetter) string {
	if l.Count < 2 {
		return ""
	}
	return fmt.Sprintf(", %d times, last %s", l.Count, l.Last.Format(time.RFC3339))
}

// neverSent is for a service without dam row.
func (s *report) neverSent(out *Service, say func(Verdict, string, ...any)) {
	switch {
	case s.Deleted != nil:
		say(NeverSent, "Nothing was ever sent and all sources have deleted the entity, so there is nothing to retract")
	case !s.inspection.Complete:
		say(NeverSent, "Nothing was sent: the entity is not complete, since the required %s no document", names(s.Missing))
	case !out.Match:
		say(NeverSent, "Nothing was ever sent: the filter (%s) does not let the document through, so there is nothing to retract", oneLine(out.Filter))
	case out.WouldSend:
		say(NotYet, "Nothing was sent yet: the service is new to this entity, and the entity's next event or weir replay %s --service %s sends it", remedy.Word(s.Entity), out.Service)
	default:
		say(NeverSent, "Nothing was ever sent")
	}
}

// delivered is for a service whose last change is delivered.
func (s *report) delivered(out *Service, c config.Service, row store.Row, say func(Verdict, string, ...any)) {
	held := fmt.Sprintf("the customer has version %s", row.Version)
	if row.Content.IsRetracted() {
		held = fmt.Sprintf("the retraction with version %s is delivered", row.Version)
	}
	held += s.pendingText(out)
	// A control record that named services is about this one only if it was sent
	// something then.
	i := len(s.Events) - 1
	for i > 0 && s.Events[i].Action != "" && out.Events[i] == s.Events[i].Action {
		i--
	}
	if i < 0 {
		say(UpToDate, "No event is on record; %s", held)
		return
	}
	e := s.Events[i]
	name := e.position()
	switch became := out.Events[i]; {
	case e.version == uint64(row.Version):
		verb := "changed this view"
		if e.Action != "" {
			verb = "had this view sent"
		}
		if row.Content.IsRetracted() {
			verb = "took the entity out of this view" + s.outBecause(out)
		}
		say(Sent, "The last event (%s) %s, and %s", name, verb, held)
	case e.Outcome == decide.HistoryNoise:
		say(Noise, "The last event (%s) is noise: without what is stripped, its document equals the stored one; %s", name, held)
	case strings.HasPrefix(e.Outcome, "stale"):
		say(Stale, "The last event (%s) is stale%s: %s; %s", name, e.inRow(), staleBecause(e.Outcome), held)
	case became == "held back" && e.Action != "":
		say(HeldBack, "The last record (%s) decided again, and this view is the same as what was sent before%s; %s", name, s.uncompared(c), held)
	case became == "held back":
		say(HeldBack, "The last event (%s) changed the entity, but this view of it is the same as what was sent before%s; %s", name, s.uncompared(c), held)
	case became == "filtered":
		say(HeldBack, "The last event (%s) changed the entity, which the filter (%s) keeps out of this view, as before; %s", name, oneLine(out.Filter), held)
	case became == "incomplete":
		say(HeldBack, "The last event (%s) changed the entity, which is not complete, since the required %s no document; %s", name, names(s.Missing), held)
	case became == "pruned" && out.Filter != "" && row.Content.IsRetracted():
		say(Pruned, "The last event (%s) changed nothing that this projection reads (%s), or the filter (%s) keeps the entity out as before; %s", name, s.reads(c), oneLine(out.Filter), held)
	case became == "pruned":
		say(Pruned, "The last event (%s) changed nothing that this projection reads (%s)%s; %s", name, s.reads(c), s.carried(c), held)
	case e.Outcome == decide.HistoryDead:
		say(UpToDate, "The last event (%s) is a dead letter; %s", name, held)
	case e.Action != "":
		say(UpToDate, "The last record (%s) did not change what this service has; %s", name, held)
	default:
		say(UpToDate, "What the last event (%s) did to this service was decided under another configuration and is not kept; %s", name, held)
	}
}

// pendingText is the addition for an entity that a decision now would send.
func (s *report) pendingText(out *Service) string {
	if !out.WouldSend {
		return ""
	}
	if s.Current {
		return ", and differs from what would be decided now"
	}
	return fmt.Sprintf(", and differs under this configuration, so the next event or weir replay %s --service %s sends it", remedy.Word(s.Entity), out.Service)
}

func (s *report) outBecause(out *Service) string {
	switch {
	case s.Deleted != nil:
		return " (all sources have deleted it)"
	case !s.inspection.Complete:
		return fmt.Sprintf(" (the required %s no document)", names(s.Missing))
	case out.Filter != "":
		return fmt.Sprintf(" (filter %s)", oneLine(out.Filter))
	}
	return ""
}

// cause describes the record with a version.
func (s *report) cause(version uint64) string {
	for _, e := range s.Events {
		if e.version == version {
			return "Event (" + e.position() + ")"
		}
	}
	return "An earlier record"
}

func (e Event) describe() string {
	what := cmp.Or(e.Action, e.Source)
	if id := e.shownID(); id != "" {
		what += " " + id
	}
	return what
}

// jobPart matches the id of a job's control record: the job's number, and a part.
var jobPart = regexp.MustCompile(`^job-(\d+)(/|$)`)

// shownID is the event's id as shown. For a record of a job it is the job's number.
func (e Event) shownID() string {
	if m := jobPart.FindStringSubmatch(e.EventID); m != nil && e.Action != "" {
		return "job " + m[1]
	}
	return shown(e.EventID)
}

// position describes an event with its position in the inbox.
func (e Event) position() string { return e.describe() + ", " + e.Version }

// reads lists the paths that a projection reads, as text.
func (s *report) reads(c config.Service) string {
	var all []string
	for _, p := range s.plan.Projections[c.Projection].ReadSet() {
		all = append(all, strings.ReplaceAll(p.String(), `\#`, projections.Elements))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	const most = 4
	if len(all) > most {
		all = append(all[:most:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return strings.Join(all, ", ")
}

// uncompared lists in which parts two equal views of a service may differ.
func (s *report) uncompared(c config.Service) string {
	rules, _ := s.plan.Projections[c.Projection].Uncompared()
	if len(rules) == 0 {
		return s.carried(c)
	}
	return s.carried(c) + ", equal by same: " + strings.Join(rules, ", ")
}

// carried names the carried fields of a service.
func (s *report) carried(c config.Service) string {
	if _, carried := s.plan.Projections[c.Projection].Uncompared(); len(carried) > 0 {
		return ", apart from carried fields (" + strings.Join(carried, ", ") + ")"
	}
	return ""
}

// has describes the customer's present content.
func has(out *Service, row store.Row) string {
	switch {
	case out.Last == nil:
		return "nothing was sent before"
	case out.Last.Delivered:
		return fmt.Sprintf("the customer has version %s", row.Version)
	case out.Queued:
		return fmt.Sprintf("version %s is queued", row.Version)
	}
	return "the customer's content is unknown"
}

// progressText says how far the deliveries of a service are.
func progressText(out *Service) string {
	changes := english.PluralWord(int(out.Behind), "change", "changes")
	if out.Position == "" {
		return fmt.Sprintf("nothing of this service was delivered in its partition yet, and %d %s wait there at most", out.Behind, changes)
	}
	return fmt.Sprintf("in its partition the service has come to %s and is %d %s behind at most", out.Position, out.Behind, changes)
}

// inRow says how many stale events there were in a row, if more than one.
func (e *Event) inRow() string {
	switch {
	case e.InRow == 0:
		return ""
	case e.InRow > decide.HistoryRow:
		return fmt.Sprintf(", the last of at least %d in a row", e.InRow)
	}
	return fmt.Sprintf(", the last of %d in a row", e.InRow)
}

func staleBecause(outcome string) string {
	switch outcome {
	case decide.HistoryStalePosition:
		return "the entity has taken a later position of the same stream"
	case decide.HistoryStaleEventID:
		return "an event with this id and content was taken already"
	case decide.HistoryStaleSequence:
		return "its sequence is lower than one that was taken"
	case decide.HistoryStaleClaim:
		return "its idempotency key had its effect already"
	case decide.HistoryStaleSource:
		return "another session reads its source since, and has read it too if it was committed"
	case decide.HistoryStaleReplay:
		return "it was a dead letter, and something newer of its source came since"
	}
	return outcome
}

// names joins sources for "the required … no document".
func names(sources []string) string {
	if len(sources) == 1 {
		return "source " + sources[0] + " has"
	}
	return strings.TrimSuffix("sources "+english.WordSeries(sources, "and"), " ") + " have"
}

// oneLine brings a text on one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
