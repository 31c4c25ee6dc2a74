package pipeline

import (
	"errors"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// What is shorter than an election keeps nobody from work, what is longer does:
// topics that take no record, and brokers that do not answer.
func TestTopicsAndBrokersThatAreAwayForLong(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fault, away := &transport.TopicFault{Topic: "inbox", Missing: true}, errors.New("connection refused")
	for name, looks := range map[string]struct {
		of  func(h *topicHealth, wrong bool, now time.Time)
		err error
	}{
		"topic": {func(h *topicHealth, wrong bool, now time.Time) {
			if wrong {
				h.saw([]*transport.TopicFault{fault}, now)
			} else {
				h.saw(nil, now)
			}
		}, fault},
		"brokers": {func(h *topicHealth, wrong bool, now time.Time) {
			if wrong {
				h.answered(away, now)
			} else {
				h.answered(nil, now)
			}
		}, away},
	} {
		t.Run(name, func(t *testing.T) {
			var h topicHealth
			looks.of(&h, false, begin)
			looks.of(&h, true, begin.Add(time.Hour))
			looks.of(&h, true, begin.Add(time.Hour+topicPatience-time.Second))
			require.NoError(t, h.blocked(begin.Add(time.Hour+topicPatience-time.Second)))
			require.ErrorIs(t, h.blocked(begin.Add(time.Hour+topicPatience)), looks.err)
			looks.of(&h, false, begin.Add(2*time.Hour))
			require.NoError(t, h.blocked(begin.Add(2*time.Hour)))
		})
	}
}
