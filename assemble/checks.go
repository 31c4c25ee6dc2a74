package assemble

import (
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/config"
)

// CheckServices returns the check services of a configuration, with their numbers, or 0 for one
// that no caller has used yet.
func CheckServices(c *config.Config, numbers map[string]int32) []checks.Service {
	all := make([]checks.Service, len(c.Checks))
	for i := range c.Checks {
		all[i] = CheckService(&c.Checks[i])
		all[i].Number = numbers[all[i].Name]
	}
	return all
}

// CheckService returns a check service without its number.
func CheckService(c *config.Check) checks.Service {
	s := checks.Service{Name: c.Service(), Numbers: canonicaltree.Literal}
	if c.Numbers == config.Decimal {
		s.Numbers = canonicaltree.Decimal
	}
	return s
}
