package pipeline

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/operate"
)

// healthNow returns how the process and its services are doing.
func (m *monitor) healthNow() operate.Health {
	reason, err := m.ready()
	return operate.HealthOf(reason, err, m.stages.conditions(), time.Now())
}

// serveHealth answers /readyz: 200 while the process does its work, whatever its
// services meet, else 503. Errors may name servers: they are for those who may ask.
func serveHealth(w http.ResponseWriter, h operate.Health, whole bool) {
	if !whole {
		h = operate.Health{Level: h.Level}
	}
	w.Header().Set("Content-Type", "application/json")
	if h.Level == operate.LevelDown {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(h)
}
