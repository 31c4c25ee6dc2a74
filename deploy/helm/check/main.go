// Command check reads what the chart renders and decodes each object strictly into the type that
// Kubernetes has for it: a field of another name, or of another type, is an error. It needs no
// network, where kubeconform does for its schemas.
package main

import (
	"bytes"
	"fmt"
	"os"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, file := range os.Args[1:] {
		n, err := check(file)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %s\n", file, err)
			os.Exit(1)
		}
		fmt.Printf("%s: %d objects are what Kubernetes takes\n", file, n)
	}
}

func check(file string) (n int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for _, part := range bytes.Split(text, []byte("\n---\n")) {
		var of struct {
			Kind       string `json:"kind"`
			APIVersion string `json:"apiVersion"`
		}
		if err := yaml.Unmarshal(part, &of); err != nil {
			return n, err
		}
		object, known := map[string]any{
			"apps/v1 Deployment":                     &apps.Deployment{},
			"autoscaling/v2 HorizontalPodAutoscaler": &autoscaling.HorizontalPodAutoscaler{},
			"policy/v1 PodDisruptionBudget":          &policy.PodDisruptionBudget{},
			"v1 ConfigMap":                           &core.ConfigMap{},
			"v1 Service":                             &core.Service{},
		}[of.APIVersion+" "+of.Kind]
		if !known {
			return n, fmt.Errorf("nobody checks a %s of %s", of.Kind, of.APIVersion)
		}
		if err := yaml.UnmarshalStrict(part, object); err != nil {
			return n, fmt.Errorf("%s: %w", of.Kind, err)
		}
		n++
	}
	return n, nil
}
