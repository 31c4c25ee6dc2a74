package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/store"
)

func (c *computation) say(format string, args ...any) {
	c.effect.Notes = append(c.effect.Notes, fmt.Sprintf(format, args...))
}

// note names the gaps of the numbers.
func (c *computation) note(active store.Revision) {
	say := c.say
	if c.effect.Active {
		say("The candidate decides as the active configuration does, wherever each of them sends to: what would be sent is what is on its way to it anyway (services reset, or entities not yet moved to it).")
	}
	old := c.in.Against
	if old == nil {
		if !c.effect.Active {
			say("What a customer has now is stored as a hash only: give --against with the configuration that runs now to see differences, and to have what the candidate strips less or cuts out differently listed.")
		}
		return
	}
	if !old.DecidesLike(active.Fingerprint) {
		say("The configuration that is compared with is not the active one, so differences may not be those that customers would see.")
	}
	c.noteTimes()
	for i := range c.in.Candidate.Sources {
		now := &c.in.Candidate.Sources[i]
		was := old.Sources.Find(now.Name)
		if was == nil {
			say("Source %s is new: it has no documents yet, so what it will add is not in the numbers.", now.Name)
			continue
		}
		c.noteSource(was, now)
	}
	for i := range old.Sources {
		if name := old.Sources[i].Name; c.in.Candidate.Sources.Find(name) == nil {
			say("Source %s is gone: its stored documents take no part any more, which is in the numbers.", name)
		}
	}
}

// noteTimes names changed paces, which send nothing again, and changed refreshes.
func (c *computation) noteTimes() {
	type times struct{ pace, refresh string }
	of := func(s config.Service) times {
		t := times{cmp.Or(s.Delivery.Pace.String(), "none"), "none"}
		if r := s.Delivery.Refresh; r > 0 {
			t.refresh = r.String()
		}
		return t
	}
	old := map[string]times{}
	for _, s := range c.in.Against.Services() {
		old[s.Name] = of(s)
	}
	for _, s := range c.in.Candidate.Services() {
		was, found := old[s.Name]
		now := of(s)
		if found && was.pace != now.pace {
			c.say("%s changes its pace from %s to %s: what waits continues under the new one, and nothing is sent again.", s.Name, was.pace, now.pace)
		}
		if found && was.refresh != now.refresh {
			c.say("%s changes its refresh from %s to %s: at once it sends nothing again.", s.Name, was.refresh, now.refresh)
		}
	}
}

func (c *computation) noteSource(was, now *config.Source) {
	say := c.say
	var less []string
	for _, pattern := range was.Strip {
		if !slices.Contains(now.Strip, pattern) {
			less = append(less, pattern)
		}
	}
	if len(less) > 0 {
		say("Source %s strips less than now (%s): values there were taken away before they were stored, so they are absent here and come with each entity's next event.", now.Name, strings.Join(less, ", "))
	}
	if was.Payload != now.Payload {
		say("Source %s takes its document from another place (%s instead of %s): stored documents are as the old one cut them out.", now.Name, orWhole(now.Payload), orWhole(was.Payload))
	}
	if was.Entity != now.Entity {
		say("Source %s takes the entity's id from another place (%s instead of %s): entities under new ids are not in the numbers.", now.Name, now.Entity, was.Entity)
	}
	if was.Mode != now.Mode {
		say("Source %s changes its mode to %s: that holds for its next events, stored documents stay.", now.Name, now.Mode)
	}
}

// noteRenames suggests the key was for a new service that differs from a removed one in one part
// of its name.
func (c *computation) noteRenames() {
	parts := func(name string) [3]string {
		customer, rest, _ := strings.Cut(name, "/")
		projection, sink, _ := strings.Cut(rest, "@")
		return [3]string{customer, projection, sink}
	}
	for _, added := range c.effect.Services {
		for _, gone := range c.effect.Services {
			if added.State != New || gone.State != Removed {
				continue
			}
			same, a, b := 0, parts(added.Service), parts(gone.Service)
			for i := range a {
				if a[i] == b[i] {
					same++
				}
			}
			if same == len(a)-1 {
				c.say("%s is new and %s is removed. If this is a rename, write was: the new name then keeps the state of the old one, and nothing is sent.", added.Service, gone.Service)
			}
		}
	}
}

func orWhole(l config.Locator) string {
	if l.IsZero() {
		return "the whole value"
	}
	return l.String()
}
