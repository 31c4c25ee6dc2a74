package explain

import (
	"context"
	"fmt"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/store"
)

// checkServices reads the rows of check services, which do not depend on the sources. numbers
// are those of the services that have rows.
func checkServices(ctx context.Context, in Input, numbers map[string]int32) ([]Check, error) {
	var names []string
	var keys []store.Key
	for i := range in.Config.Checks {
		if name := in.Config.Checks[i].Service(); in.Service == "" || name == in.Service {
			names = append(names, name)
			keys = append(keys, store.Key{Service: numbers[name], Entity: in.Entity}) // 0 has no rows
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := in.Store.CheckRows(ctx, keys)
	if err != nil {
		return nil, err
	}
	var found []Check
	for i, row := range rows {
		if !row.Found {
			continue
		}
		s, err := checks.Look(row)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[i], err)
		}
		found = append(found, checkOf(names[i], s))
	}
	return found, nil
}

func checkOf(service string, s checks.State) Check {
	c := Check{
		Service: service, Version: uint64(s.Version), Confirmed: uint64(s.Confirmed),
		Given: s.Given, Sequence: s.Sequence, Events: s.Events,
	}
	if !s.Unknown() {
		c.Hash = s.Content.String()
	}
	switch {
	case s.Unknown():
		c.Standing = CheckUnknown
		c.Why = fmt.Sprintf("Version %d was released or reset, so the receiver's content is unknown: the next content passes, the same or another, with a higher version", c.Version)
	case s.Open():
		c.Standing = CheckOpen
		c.Why = fmt.Sprintf("Version %d is not confirmed: the same content passes again, with that version and its key; another one passes with a higher version", c.Version)
	case s.GivenBack:
		c.Standing = CheckRefused
		c.Why = fmt.Sprintf("Version %d was refused, so the content of version %d, which is confirmed, is current again: that one is a duplicate; any other passes", c.Version, c.Confirmed)
	default:
		c.Standing = CheckConfirmed
		c.Why = fmt.Sprintf("Version %d is confirmed: the same content is a duplicate; another one passes", c.Version)
	}
	if c.Sequence != "" {
		c.Why += fmt.Sprintf("; with a sequence below %s it is stale", shown(c.Sequence))
	}
	c.Why += "."
	return c
}

func (x *Explanation) checks(p *printer) {
	if len(x.Checks) == 0 {
		return
	}
	p.line("")
	p.line("Check services")
	for _, c := range x.Checks {
		confirmed := "nothing confirmed"
		switch {
		case c.Standing == CheckConfirmed:
			confirmed = "confirmed"
		case c.Confirmed != 0:
			confirmed = fmt.Sprintf("confirmed up to %d", c.Confirmed)
		}
		content := "unknown"
		switch {
		case c.Given:
			content = brief(c.Hash) + " of a hash that was given"
		case c.Hash != "":
			content = brief(c.Hash)
		}
		sequence := "none"
		if c.Sequence != "" {
			sequence = shown(c.Sequence)
		}
		p.line("  %s: %s", c.Service, c.Standing)
		p.wrap("    ", "    ", fmt.Sprintf("version %d, %s; content %s; sequence %s; %d event ids remembered", c.Version, confirmed, content, sequence, c.Events))
		p.wrap("    ", "    ", c.Why)
	}
}
