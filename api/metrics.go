package api

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// unknownRoute is the route of requests that no pattern takes.
const unknownRoute = "none"

type metrics struct {
	requests *prometheus.CounterVec   // route, status
	seconds  *prometheus.HistogramVec // route
}

func newMetrics(reg prometheus.Registerer) metrics {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_api_requests_total", Help: "Requests of the API by route and status of the answer.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_api_request_seconds", Help: "Time from a request's header to the end of its answer, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"route"}),
	}
	return metrics{registered(reg, m.requests), registered(reg, m.seconds)}
}

// registered returns the collector that reg has: a stage that stopped and starts
// again in the same process makes its server again, and counts on.
func registered[C prometheus.Collector](reg prometheus.Registerer, c C) C {
	err := reg.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		return there.ExistingCollector.(C)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// expect makes the series of a route's refusals, so that the first is an increase.
func (m metrics) expect(route string) {
	for _, status := range []string{"401", "429", "500", "503"} {
		m.requests.WithLabelValues(route, status)
	}
}

func (m metrics) count(route string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}
