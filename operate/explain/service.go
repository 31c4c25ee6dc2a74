package explain

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/store"
)

// services looks at each service.
func (s *report) services() {
	for _, c := range s.in.Config.Services() {
		if s.in.Service == "" || c.Name == s.in.Service {
			s.Services = append(s.Services, s.service(c))
		}
	}
}

func (s *report) service(c config.Service) Service {
	out := Service{Service: c.Name, Filter: s.in.Config.Projections[c.Projection].When}
	if c.Current != c.Name {
		out.Renamed = c.Current
	}
	view, err := s.inspection.View(c.Projection)
	if err != nil {
		out.Fault = err.Error()
	} else if s.inspection.MergeError == nil {
		out.Match, out.View, out.Hash = view.Match, view.Doc, view.Content.String()
	}
	row, sent := s.rows[c.Name]
	if sent {
		out.Last = &LastSent{Version: row.Version.String(), State: "upsert"}
		switch {
		case row.Content == nil:
			out.Last.State = "unknown"
		case row.Refused:
			out.Last.State, out.Last.Hash = "refused", row.Content.String()
		case row.Content.IsRetracted():
			out.Last.State = "retracted"
		default:
			out.Last.Hash = row.Content.String()
		}
		partition := s.reached.Partition(s.Entity, row.Version)
		at := s.reached.Position(partition, row.Service)
		out.Position, out.Behind = versionOf(at), s.reached.Waiting(partition, row.Service)
		out.Queued = row.Content != nil && !row.Refused && row.Version >= at
		if p, is := s.paused[c.Name]; is && p.Hold != nil {
			out.Paused = "the guard holds the service: " + p.Reason
		} else if is {
			out.Paused = "the service is paused by " + p.Actor
		}
		parked := slices.IndexFunc(s.retrying, func(l store.DeadLetter) bool { return l.Service == c.Name })
		if h, failing := s.failing[c.Name]; failing {
			out.Waits = fmt.Sprintf("its target fails since %s: %s", h.Since.Format(time.RFC3339), h.Error)
		}
		if parked >= 0 && row.Content != nil && !row.Refused && s.retrying[parked].Version == row.Version {
			l := &s.retrying[parked]
			out.Queued, out.Waits = true, "an earlier change of the entity fails, and this one follows it"
			if l.Attempts > 0 {
				out.Waits = fmt.Sprintf("it failed %d times (%s), and is tried again at %s", l.Attempts, l.Reason, l.NextTry.Format(time.RFC3339))
			}
		}
		out.Last.Delivered = !out.Queued && row.Content != nil && !row.Refused && row.Version < at && !slices.ContainsFunc(s.letters, func(l store.DeadLetter) bool {
			return l.Service == c.Name && l.Version == row.Version
		})
	}
	out.WouldSend = slices.ContainsFunc(s.now.Sent, func(x change.Change) bool { return x.Service == c.Name })
	var decided change.Version // the newest event that is known to have been decided for the service
	for i := range s.Events {
		became := s.outcomeOf(i, c, &out, row)
		out.Events = append(out.Events, became)
		if slices.Contains([]string{"sent", "delivered", "held back", "filtered", "refused"}, became) {
			decided = max(decided, change.Version(s.Events[i].version))
		}
	}
	var newest *store.DeadLetter // unless something was decided since
	for i := range s.letters {
		if l := &s.letters[i]; l.Service == c.Name {
			out.Letters = append(out.Letters, l.ID)
			if (row.Refused || l.Version >= decided) && (newest == nil || l.Version >= newest.Version) {
				newest = l
			}
		}
	}
	s.verdict(&out, c, row, sent, newest)
	return out
}
