package events_test

import (
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/api/events"
	"github.com/stretchr/testify/require"
)

func TestKeyHeader(t *testing.T) {
	long := strings.Repeat("k", 255)
	for given, want := range map[string]string{
		`"8e03978e-40d5-43dd-bc93-6894a57f9324"`: "8e03978e-40d5-43dd-bc93-6894a57f9324", // the draft's own example
		`8e03978e-40d5-43dd-bc93-6894a57f9324`:   "8e03978e-40d5-43dd-bc93-6894a57f9324",
		` "a\"b\\c" `:                            `a"b\c`, `order:7/+=;x`: `order:7/+=;x`, `";,"`: ";,", long: long, `"` + long + `"`: long, "!": "!", "~": "~",
	} {
		got, err := events.ParseKey(given)
		require.NoError(t, err, given)
		require.Equal(t, want, got)
	}
	for _, wrong := range []string{
		"", " ", `"`, `""`, `"a`, `a"`, `"a"b`, `"a";q=1`, `"a", "b"`, "a,b", "a b", `"a b"`, `"a\n"`, `"a\`, `"a\"`, `a\b`, "a\tb", "ü", "\"\x7f\"", "a\x00", long + "k",
	} {
		_, err := events.ParseKey(wrong)
		require.Error(t, err, "%q", wrong)
	}
}

func FuzzKeyHeader(f *testing.F) {
	for _, seed := range []string{`"a"`, "a", `"a\"b"`, `"a";q`, "a,b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		key, err := events.ParseKey(value)
		if err != nil {
			require.Empty(t, key)
			return
		}
		require.Regexp(t, `^[!-~]{1,255}$`, key)
		again, err := events.ParseKey(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`)
		require.NoError(t, err)
		require.Equal(t, key, again, "its quoted form is the same key")
	})
}
