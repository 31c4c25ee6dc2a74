// Package deploy holds what docker-compose.yml mounts: settings of Prometheus and Grafana, the image
// of the pipeline, a configuration that uses all servers. Its tests check that the parts fit.
package deploy
