package config_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

var update = flag.Bool("update", false, "write the golden files")

// environment has the variables of the test cases. Its values must not be seen
// in any fault.
var environment = map[string]string{
	"SET":         "value-from-environment",
	"PASSWORD":    "hunter2-password",
	"SHORT_TOKEN": "hunter2-token",
	"STORE_URL":   "mysql://user:hunter2-url@db.example/weir",
	"HOOK_SECRET": "whsec_aHVudGVyMg==",
	"EMPTY":       "",
}

func env(name string) (string, bool) {
	v, ok := environment[name]
	return v, ok
}

// Each folder holds a configuration with certain mistakes, and faults.golden
// with all the faults that must be found, and their places.
func TestFaults(t *testing.T) {
	cases, err := filepath.Glob("testdata/faults/*")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, dir := range cases {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), env)
			var faults *config.Faults
			require.ErrorAs(t, err, &faults)
			require.Nil(t, c)

			got := strings.ReplaceAll(faults.Error(), dir+"/", "") + "\n"
			golden := filepath.Join(dir, "faults.golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)

			asJSON, err := json.Marshal(faults)
			require.NoError(t, err)
			for name, secret := range environment {
				if secret != "" {
					require.NotContains(t, got, secret, name)
					require.NotContains(t, string(asJSON), secret, name)
				}
			}
			require.NotContains(t, got+string(asJSON), "hunter2")
			var back config.Faults
			require.NoError(t, json.Unmarshal(asJSON, &back))
			require.Equal(t, faults.List, back.List)
		})
	}
}
