package config_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// The reference must name every key with its default, and its example must work.
func TestReferenceIsComplete(t *testing.T) {
	data, err := os.ReadFile("../docs/configuration.md")
	require.NoError(t, err)
	text := string(data)

	// Rows by the last part of the keys that they are about.
	rows := map[string][]string{}
	key := regexp.MustCompile("`([a-z_.]+)`")
	for line := range strings.SplitSeq(text, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range key.FindAllStringSubmatch(cells[1], -1) {
			name := m[1][strings.LastIndex(m[1], ".")+1:]
			rows[name] = append(rows[name], cells[2])
		}
	}
	types := map[string]reflect.Type{}
	collect(reflect.TypeFor[config.Config](), types)
	collect(reflect.TypeFor[config.CustomerFile](), types)
	for _, k := range kinds() {
		collect(reflect.TypeOf(k.value), types)
	}
	for name, typ := range types {
		for i := range typ.NumField() {
			tag := typ.Field(i).Tag
			yaml, option, _ := strings.Cut(tag.Get("yaml"), ",")
			if yaml == "" || yaml == "-" || option == "inline" {
				continue
			}
			value, hasDefault := tag.Lookup("default")
			if !hasDefault {
				require.True(t, rows[yaml] != nil || strings.Contains(text, "`"+yaml+"`") || strings.Contains(text, yaml+"."),
					"%s.%s is not in the reference", name, yaml)
				continue
			}
			first, _, _ := strings.Cut(value, ",")
			require.Contains(t, strings.Join(rows[yaml], "\n"), "`"+first+"`", "%s.%s: default", name, yaml)
		}
	}

	files := map[string]string{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n# (\\S+)\n(.*?)```").FindAllStringSubmatch(text, -1) {
		files[block[1]] = block[2]
	}
	require.Len(t, files, 2)
	c, err := assemble.Load(write(t, files), env, config.AllowUnsetEnv())
	require.NoError(t, err)
	require.Len(t, c.Services(), 3)
}
