package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// A constant is a number, a text or a boolean as the file shows it, or an error: what versions
// of YAML read in two ways is not guessed.
func TestConstantsAreAsWritten(t *testing.T) {
	t.Parallel()
	const digits, word = "is a number as JSON does not write it", "is true or false to some readers of YAML, and a text to others"
	cases := map[string]string{ // the JSON, or the problem
		`1e3`: `1e3`, `1E+3`: `1E+3`, `-1e-3`: `-1e-3`, `1.5e3`: `1.5e3`, `0e0`: `0e0`, `1.50`: `1.50`, `-0`: `-0`, `1e400`: `1e400`,
		`18446744073709551616`: `18446744073709551616`, `-1234567890123456789012345678901234567890`: `-1234567890123456789012345678901234567890`, `0.1000000000000000000000001`: `0.1000000000000000000000001`,
		`08`: digits, `-08`: digits, `007`: digits, `00`: digits, `0x10`: digits, `0X1F`: digits, `0o17`: digits, `0O17`: digits, `0b11`: digits, `0B11`: digits,
		`1_000`: digits, `1_0.5`: digits, `.5`: digits, `-.5`: digits, `5.`: digits, `+5`: digits, `+1e3`: digits, `1.e3`: digits, `.5e3`: digits, `08.5`: digits,
		`yes`: word, `No`: word, `ON`: word, `off`: word, `y`: word, `N`: word,
		`TRUE`: "is not a value of JSON", `False`: "is not a value of JSON", `.inf`: "is not a value of JSON", `.NaN`: "is not a value of JSON",
		`true`: `true`, `~`: `null`, `Null`: `null`, `NaN`: `"NaN"`, `inf`: `"inf"`, `e3`: `"e3"`, `1e`: `"1e"`, `1.2.3`: `"1.2.3"`, `10.0.0.1`: `"10.0.0.1"`,
		`2026-01-01`: `"2026-01-01"`, `2026-01-01T00:00:00Z`: `"2026-01-01T00:00:00Z"`, `12:30`: `"12:30"`, `0x`: `"0x"`, `_1`: `"_1"`, `1 000`: `"1 000"`, `banana`: `"banana"`,
		`"1e3"`: `"1e3"`, `'08'`: `"08"`, `"yes"`: `"yes"`, `|-` + "\n          08": `"08"`, `[1e3, "08", {a: 1e2}]`: `[1e3,"08",{"a":1e2}]`, `[1, 0x10]`: digits, `{a: {b: yes}}`: word, `{08: 1, yes: 2}`: `{"08":1,"yes":2}`,
	}
	for key, beside := range map[string]string{"const": "", "default": "        path: lab.k\n"} {
		for text, want := range cases {
			path := write(t, map[string]string{
				"weir.yaml": "sources: {lab: {file: {path: a.jsonl}, mount: lab, entity: id}}\ncustomers: [acme.yaml]\n",
				"acme.yaml": "customer: acme\nprojections:\n  p:\n    deliver: {out: {file: {path: out.jsonl}}}\n    fields:\n      k:\n" + beside + "        " + key + ": " + text + "\n",
			})
			c, err := assemble.Load(path, func(string) (string, bool) { return "", false })
			if strings.HasPrefix(want, "is ") {
				var faults *config.Faults
				require.ErrorAs(t, err, &faults, text)
				require.Len(t, faults.List, 1, "%s: %v", text, err)
				require.Equal(t, want, faults.List[0].Problem, text)
				require.Contains(t, faults.List[0].Path, "fields.k."+key)
				continue
			}
			require.NoError(t, err, text)
			f := c.Projections[0].Fields[0]
			got := f.Const
			if key == "default" {
				got = f.Default
			}
			require.Equal(t, want, string(got), "%s: %s", key, text)
		}
	}
}
