package deploy

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// templates are empty, with those functions of Helm that the chart uses.
func templates(t *testing.T) (all *template.Template) {
	number := func(v any) int {
		n, err := strconv.Atoi(fmt.Sprint(v))
		require.NoError(t, err)
		return n
	}
	toYAML := func(v any) string {
		b, err := yaml.Marshal(v)
		require.NoError(t, err)
		return strings.TrimSuffix(string(b), "\n")
	}
	all = template.New("").Option("missingkey=zero").Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b bytes.Buffer
			err := all.ExecuteTemplate(&b, name, data)
			return b.String(), err
		},
		"nindent": func(n int, s string) string {
			pad := "\n" + strings.Repeat(" ", n)
			return pad + strings.ReplaceAll(s, "\n", pad)
		},
		"toYaml": toYAML, "quote": func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"sha256sum": func(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) },
		"default": func(d, v any) any {
			if v == nil || v == "" || v == 0.0 {
				return d
			}
			return v
		},
		"contains": func(part, s string) bool { return strings.Contains(s, part) }, "hasSuffix": func(end, s string) bool { return strings.HasSuffix(s, end) },
		"trunc": func(n int, s string) string { return s[:min(n, len(s))] }, "trimSuffix": func(end, s string) string { return strings.TrimSuffix(s, end) },
		"join": func(sep string, list []any) string {
			return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(list...)), sep), "[]")
		},
		"list": func(v ...any) []any { return v },
		"dict": func(kv ...any) map[string]any {
			m := map[string]any{}
			for i := 0; i < len(kv); i += 2 {
				m[kv[i].(string)] = kv[i+1]
			}
			return m
		},
		"get": func(m map[string]any, k string) any { return m[k] },
		"set": func(m map[string]any, k string, v any) map[string]any { m[k] = v; return m },
		"merge": func(to map[string]any, from ...any) map[string]any {
			for _, m := range from {
				for k, v := range m.(map[string]any) {
					if _, has := to[k]; !has {
						to[k] = v
					}
				}
			}
			return to
		},
		"deepCopy": func(m map[string]any) (c map[string]any) {
			require.NoError(t, yaml.Unmarshal([]byte(toYAML(m)), &c))
			return c
		},
		"int": number, "add": func(a, b any) int { return number(a) + number(b) }, "mul": func(a, b any) int { return number(a) * number(b) },
		"div":        func(a, b any) int { return number(a) / number(b) },
		"regexMatch": func(p, s string) bool { return regexp.MustCompile(p).MatchString(s) }, "regexFind": func(p, s string) string { return regexp.MustCompile(p).FindString(s) },
		"fail": func(why string) (string, error) { return "", errors.New(why) },
	})
	return all
}

// render fills in the chart's templates with the few functions of Helm that they use.
// scripts/package does it with Helm itself.
func render(t *testing.T, change func(values map[string]any)) (map[string]map[string]any, error) {
	t.Helper()
	var values map[string]any
	readYAML(t, "deploy/helm/weir/values.yaml", &values)
	if change != nil {
		change(values)
	}
	all := templates(t)
	files, err := filepath.Glob(filepath.Join(root, "deploy/helm/weir/templates/*"))
	require.NoError(t, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		_, err = all.New("weir/templates/" + filepath.Base(file)).Parse(string(b))
		require.NoError(t, err)
	}
	data := map[string]any{
		"Values": values, "Release": map[string]any{"Name": "weir", "Namespace": "default", "Service": "Helm"},
		"Chart": map[string]any{"Name": "weir", "Version": "1", "AppVersion": "1"}, "Template": map[string]any{"BasePath": "weir/templates"},
	}
	objects := map[string]map[string]any{}
	for _, file := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		var b bytes.Buffer
		if err := all.ExecuteTemplate(&b, "weir/templates/"+filepath.Base(file), data); err != nil {
			return nil, err
		}
		for _, part := range strings.Split(b.String(), "\n---\n") {
			var object map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(part), &object), "%s:\n%s", file, part)
			if object != nil {
				objects[fmt.Sprint(object["kind"])] = object
			}
		}
	}
	return objects, nil
}

// The operators' listener is reached from nowhere unless it is asked for, and a port
// only from where the values say.
func TestChartOpensNothingUnasked(t *testing.T) {
	objects, err := render(t, nil)
	require.NoError(t, err)
	require.NotContains(t, objects, "Service")
	spec := objects["NetworkPolicy"]["spec"].(map[string]any)
	require.Equal(t, []any{"Ingress"}, spec["policyTypes"])
	require.Empty(t, spec["ingress"])
	container := toYAML(t, objects["Deployment"])
	require.NotContains(t, container, "containerPort")
	require.NotContains(t, container, "httpGet", "a probe from outside does not reach loopback")

	objects, err = render(t, func(v map[string]any) {
		v["apiPort"], v["adminPort"] = 9601, 9600
		v["networkPolicy"].(map[string]any)["admin"] = []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"name": "monitoring"}}}}
	})
	require.NoError(t, err)
	require.Contains(t, toYAML(t, objects["Service"]), "9600")
	ingress := objects["NetworkPolicy"]["spec"].(map[string]any)["ingress"].([]any)
	require.Len(t, ingress, 2)
	for _, rule := range ingress {
		require.NotEmpty(t, rule.(map[string]any)["from"], "an empty list is everybody")
	}
	require.Contains(t, toYAML(t, ingress[1]), "monitoring")
}

// The container's limit follows from limits.memory.
func TestChartDerivesMemory(t *testing.T) {
	for memory, want := range map[string]string{"256MiB": "576Mi", "2GiB": "3264Mi"} {
		objects, err := render(t, func(v map[string]any) {
			v["config"].(map[string]any)["limits"] = map[string]any{"memory": memory}
		})
		require.NoError(t, err)
		container := toYAML(t, objects["Deployment"])
		require.Equal(t, 2, strings.Count(container, "memory: "+want), container)
	}
	objects, err := render(t, func(v map[string]any) {
		v["resources"] = map[string]any{"limits": map[string]any{"memory": "7Gi"}}
	})
	require.NoError(t, err)
	require.Contains(t, toYAML(t, objects["Deployment"]), "memory: 7Gi")
	_, err = render(t, func(v map[string]any) {
		v["config"].(map[string]any)["limits"] = map[string]any{"memory": "much"}
	})
	require.ErrorContains(t, err, "write it in MiB or GiB")
}

func toYAML(t *testing.T, v any) string {
	t.Helper()
	b, err := yaml.Marshal(v)
	require.NoError(t, err)
	return string(b)
}
