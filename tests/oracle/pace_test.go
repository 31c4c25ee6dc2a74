package oracle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckRate(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(ms ...int) (all []time.Time) {
		for _, n := range ms {
			all = append(all, began.Add(time.Duration(n)*time.Millisecond))
		}
		return all
	}
	for _, within := range [][]time.Time{nil, at(500, 1000, 1500), at(5000, 5000, 5500), at(9000, 9000, 9499, 10000)[1:]} {
		require.NoError(t, CheckRate(began, within, 2, 2))
	}
	for _, above := range [][]time.Time{at(0), at(499), at(500, 999), at(5000, 5000, 5000), at(5000, 5000, 5500, 5900)} {
		require.Error(t, CheckRate(began, above, 2, 2))
	}
}
