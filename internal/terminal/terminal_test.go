package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHarmless(t *testing.T) {
	for text, want := range map[string]string{
		"{\"a\":\n\t1}": "{\"a\":\n\t1}", "ü日本\ufffd": "ü日本\ufffd", `C:\"x"`: `C:\"x"`,
		"\x1b[2Ja\x00\xff\r\u009b": `\x1b[2Ja\x00\xff\r\u009b`,
	} {
		require.Equal(t, want, Harmless(text))
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{"": "", "ü日 本": "ü日 本", "a\tb": `"a\tb"`, "\u009b\xff": `"\u009b\xff"`} {
		require.Equal(t, want, Visible(text))
	}
}

func TestLine(t *testing.T) {
	require.Equal(t, `{ "a": "\x1b\u009b"}`, Line("{\n\"a\":\t\"\x1b\u009b\"}"))
}
