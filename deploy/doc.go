// Package deploy holds what Weir is installed with: the files of the packages and the Helm chart,
// what docker-compose.yml mounts, settings of Prometheus and Grafana. Its tests check that the parts
// fit; those that install and start what make package built have the tag verify.
package deploy
