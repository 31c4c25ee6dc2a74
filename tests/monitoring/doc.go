// Package monitoring holds the dashboard and the alerts in deploy/ to what the
// pipeline really shows: a real Prometheus scrapes a real process and answers
// every query of both. It has no code of its own.
package monitoring
