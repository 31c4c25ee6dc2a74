// Package defaults fills in options that were not given.
package defaults

import "time"

// Positive returns v if it is above zero, else otherwise: for options where nothing
// at or below zero makes sense. Where zero alone means "not given", use cmp.Or.
func Positive[T int | int64 | float64 | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
