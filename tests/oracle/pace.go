package oracle

import (
	"fmt"
	"time"
)

// CheckRate holds the times of attempts, in order, against the rate of a service, in changes a
// second: a bucket that is empty at began, fills at the rate up to burst, and has a token for each.
func CheckRate(began time.Time, attempts []time.Time, rate float64, burst int) error {
	const rounding = 1e-6
	tokens := 0.0
	for i, at := range attempts {
		tokens = min(float64(burst), tokens+at.Sub(began).Seconds()*rate) - 1
		if began = at; tokens < -rounding {
			return fmt.Errorf("attempt %d of %d is %.3f too many for %g/s and a burst of %d", i+1, len(attempts), -tokens, rate, burst)
		}
	}
	return nil
}
