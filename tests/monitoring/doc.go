// Package monitoring compares the dashboard and the alerts in deploy/ with the real
// metrics of the pipeline: a real Prometheus scrapes a real process and answers
// every query of both. It has no code of its own.
package monitoring
