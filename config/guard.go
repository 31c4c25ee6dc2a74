package config

import (
	"strconv"
	"strings"
	"time"
)

// Guard holds a service before more of its entities change within a window than a source that
// works changes. In a file it may be off, or a share, which is that of retract.
type Guard struct {
	// Retract is the share of the service's entities that may be retracted.
	Retract Percent `yaml:"retract" default:"5%"`
	// Update is the share of them that may be updated.
	Update Percent `yaml:"update" default:"off"`
	// Window is the time within which these entities are counted, each once.
	Window Duration `yaml:"window" default:"10m" range:"1m..24h"`
	// Min is the number of entities that may change in any case.
	Min int `yaml:"min" default:"50" range:"1..1000000000"`
}

func (Guard) shorthand() string { return "retract" }

// complete sets the defaults of the short form, which has no window.
func (g *Guard) complete() {
	if g.Window == 0 {
		g.Window, g.Min = Duration(10*time.Minute), 50
	}
}

// inheritGuard gives the services of a customer's file its guard, unless they have their own. A
// customer that leaves has none: its retractions are meant.
func (c *CustomerFile) inheritGuard() {
	if c.Guard == nil {
		c.Guard = &Guard{Retract: 0.05}
	}
	c.Guard.complete()
	for i := range c.Projections {
		for j := range c.Projections[i].Deliver {
			d := &c.Projections[i].Deliver[j]
			if c.Leaving {
				d.Guard = new(Guard)
			}
			if d.Guard == nil {
				own := *c.Guard
				d.Guard = &own
			}
			d.Guard.complete()
		}
	}
}

// Percent is a share between 0 and 1; 0 is off. In a file it is a number with a percent sign, or
// off.
type Percent float64

// String returns the form that a file has.
func (p Percent) String() string {
	if p == 0 {
		return "off"
	}
	return strconv.FormatFloat(float64(p)*100, 'g', 10, 64) + "%"
}

// MarshalText is String.
func (p Percent) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the form that a file has.
func (p *Percent) UnmarshalText(text []byte) error {
	const want = `a share like "5%", or off`
	if string(text) == "off" {
		*p = 0
		return nil
	}
	number, found := strings.CutSuffix(string(text), "%")
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || n != n:
		return &mistake{problem: "is not a share", want: want}
	case !found:
		return &mistake{problem: "has no percent sign", want: want}
	case n <= 0:
		return &mistake{problem: "would hold every change", want: "a share above 0%, or off"}
	case n >= 100:
		return &mistake{problem: "would hold nothing", want: "a share below 100%, or off"}
	}
	*p = Percent(n / 100)
	return nil
}
