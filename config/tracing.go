package config

import "strconv"

// Tracing says which events are traced. The receiver of the traces is in the environment.
type Tracing struct {
	// Sample is the share of events that are traced, 0 to 1. An event that comes
	// with a trace context is traced if that says so, and only then.
	Sample Share `yaml:"sample" default:"0.01"`
	// EntityIDs puts the ids of entities into traces, which otherwise have a hash
	// of them.
	EntityIDs bool `yaml:"entity_ids" default:"false"`
}

// Share is a part of a whole, 0 to 1.
type Share float64

// MarshalText returns the form that a file has.
func (s Share) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(s), 'g', -1, 64), nil
}

// UnmarshalText reads a decimal number.
func (s *Share) UnmarshalText(text []byte) error {
	f, err := strconv.ParseFloat(string(text), 64)
	switch want := "a number from 0 to 1, like 0.01"; {
	case err != nil:
		return &mistake{problem: "is not a number", want: want}
	case !(f >= 0 && f <= 1): // no number at all is neither
		return &mistake{problem: "is out of range", want: want}
	}
	*s = Share(f)
	return nil
}
