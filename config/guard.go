package config

import (
	"reflect"
	"strconv"
	"strings"
)

// Guard holds a service before more of its entities change within a window than a source that
// works changes. In a file it may be off, or a share, which sets retract.
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

// IsDefault reports whether a guard equals that of a file without the key guard.
func (g Guard) IsDefault() bool {
	var usual Guard
	v := reflect.ValueOf(&usual).Elem()
	for i := range v.NumField() {
		_ = set(v.Field(i), v.Type().Field(i).Tag.Get("default")) // a test checks the tags
	}
	return g == usual
}

// inheritGuard sets the guard of a customer's file on its services without a guard of their own.
// A leaving customer has no guard: its retractions are intended.
func (c *CustomerFile) inheritGuard() {
	guard := c.Guard
	if c.Leaving {
		guard.Retract, guard.Update = 0, 0
	}
	for _, d := range c.Projections.deliveries() {
		if c.Leaving || d.Guard == nil {
			own := guard
			d.Guard = &own
		}
	}
}

// Percent is a share between 0 and 1; 0 is off. In a file it is a number with a percent sign, or
// off.
type Percent float64

// String formats the share as in a file.
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
