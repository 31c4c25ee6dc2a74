package config

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Pace limits how often and how early changes are sent. In a file it may be off, or a rate.
type Pace struct {
	// Rate is how many changes a service writes at most, over all processes, such as 50/s.
	Rate Rate `yaml:"rate" default:"off"`
	// Burst is how many changes follow at once after a pause. Defaults to the changes of a
	// second.
	Burst int `yaml:"burst" range:"1..1000000"`
	// Settle is how long an entity must be quiet before it is sent.
	Settle Duration `yaml:"settle" default:"0s" range:"0s..5m"`
	// SettleMax is when it is sent at the latest, after the first change that is not sent.
	// Defaults to ten times settle, at most 10m.
	SettleMax Duration `yaml:"settle_max" range:"1ms..10m"`
}

func (Pace) shorthand() string { return "rate" }

// String formats the pace, empty without one.
func (p Pace) String() string {
	var parts []string
	if p.Settle > 0 {
		parts = append(parts, fmt.Sprintf("quiet for %s, %s after its first change at the latest", p.Settle, p.SettleMax))
	}
	if p.Rate > 0 {
		parts = append(parts, fmt.Sprintf("at most %s, %d at once", p.Rate, p.Burst))
	}
	return strings.Join(parts, "; ")
}

// inheritPace sets the pace of a customer's file on its services that have none of their own.
func (c *CustomerFile) inheritPace() {
	for _, d := range c.Projections.deliveries() {
		if d.Pace == nil {
			own := c.Pace
			d.Pace = &own
		}
		p := d.Pace
		if p.Burst = cmp.Or(p.Burst, max(1, int(p.Rate))); p.Rate == 0 {
			p.Burst = 0
		}
		if d.ordered() {
			p.Settle = 0
		}
		if p.SettleMax = cmp.Or(p.SettleMax, min(10*p.Settle, Duration(10*time.Minute))); p.Settle == 0 {
			p.SettleMax = 0
		}
	}
}

// ordered reports whether the sink takes changes in the order of the log alone.
func (d *Delivery) ordered() bool { return d.Sink != nil && d.Sink.Kind() == "kafka" }

// checkPace checks a pace at a path of a file. d is the service, nil for that of a customer.
func checkPace(doc *document, path string, p *Pace, d *Delivery) {
	if p == nil {
		return
	}
	set := func(key string) bool { return doc.has(member(path, key)) && !doc.values[member(path, key)].unresolved }
	switch {
	case set("settle_max") && p.Settle == 0 && (set("settle") || !doc.has(member(path, "settle"))):
		doc.faultKey(path, "has settle_max without settle", `a settle like "2s"`)
	case set("settle_max") && p.SettleMax < p.Settle:
		doc.faultKey(path, "has settle_max below settle", "settle_max at or above settle")
	case set("burst") && p.Rate == 0:
		doc.faultKey(path, "has a burst without a rate", `a rate like "50/s"`)
	case d != nil && d.ordered() && p.Settle > 0:
		doc.faultKey(member(path, "settle"), "does not fit a Kafka topic, which takes changes in the order of the log", "a rate alone")
	}
}

// Rate is a number of changes per second. 0 means no limit. In a file it is a number per unit of
// time, or off.
type Rate float64

// rateUnits are the time units of a rate, in seconds.
var rateUnits = []struct {
	name    string
	seconds float64
}{{"s", 1}, {"m", 60}, {"h", 3600}}

// String formats the rate as in a file.
func (r Rate) String() string {
	if r == 0 {
		return "off"
	}
	for _, u := range rateUnits[:2] {
		if n := float64(r) * u.seconds; n >= 1 {
			return strconv.FormatFloat(n, 'g', 6, 64) + "/" + u.name
		}
	}
	return strconv.FormatFloat(float64(r)*3600, 'g', 6, 64) + "/h"
}

// MarshalText is String.
func (r Rate) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the form that a file has.
func (r *Rate) UnmarshalText(text []byte) error {
	const want = `a rate like "50/s", "600/m" or "10000/h", or off`
	if string(text) == "off" {
		*r = 0
		return nil
	}
	number, unit, _ := strings.Cut(string(text), "/")
	n, err := strconv.ParseFloat(number, 64)
	for _, u := range rateUnits {
		if err == nil && unit == u.name && n >= 1 && n <= 1e6 {
			*r = Rate(n / u.seconds)
			return nil
		}
	}
	return &mistake{problem: "is not a rate", want: want}
}
