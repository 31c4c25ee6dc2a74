package deliver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheWaitOfWhatWasGivenUpDoubles(t *testing.T) {
	for first, want := range map[time.Duration][]time.Duration{
		time.Hour:      {time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour, 24 * time.Hour},
		24 * time.Hour: {24 * time.Hour, 24 * time.Hour},
	} {
		r := Retry{Later: first}
		for i, wait := range want {
			require.Equal(t, wait, r.later(int64(i+1)))
		}
		require.Equal(t, 24*time.Hour, r.later(1<<40), "and ends")
	}
}
