package canonicaltree

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var vectorsDir = filepath.Join("..", "testdata", "structural-hash")

type vector struct {
	Name             string
	Document         string
	Hex              string // the document, where it is not UTF-8
	Literal, Decimal struct{ Encoding, Digest string }
}

func (v vector) doc(t *testing.T) []byte {
	if v.Hex == "" {
		return []byte(v.Document)
	}
	doc, err := hex.DecodeString(v.Hex)
	require.NoError(t, err)
	return doc
}

func TestVectors(t *testing.T) {
	file, err := os.ReadFile(filepath.Join(vectorsDir, "vectors.json"))
	require.NoError(t, err)
	var vectors struct {
		Scheme            uint8
		Accepted, Refused []vector
	}
	require.NoError(t, json.Unmarshal(file, &vectors))
	require.Equal(t, Scheme, vectors.Scheme)
	require.NotEmpty(t, vectors.Accepted)
	require.NotEmpty(t, vectors.Refused)
	for _, v := range vectors.Accepted {
		t.Run(v.Name, func(t *testing.T) {
			root := parse(t, string(v.doc(t)))
			for numbers, want := range map[Numbers]struct{ Encoding, Digest string }{Literal: v.Literal, Decimal: v.Decimal} {
				digest, err := Sum(v.doc(t), numbers)
				require.NoError(t, err)
				assert.Equal(t, want.Encoding, hex.EncodeToString(root.AppendEncoding(nil, numbers)))
				assert.Equal(t, want.Digest, hex.EncodeToString(digest[:]))
			}
		})
	}
	for _, v := range vectors.Refused {
		t.Run(v.Name, func(t *testing.T) {
			refused(t, string(v.doc(t)))
		})
	}
}

// The vectors hold for a reader of the specification only.
func TestIndependentImplementation(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil && testing.Short() {
		t.Skip("no python3")
	}
	require.NoError(t, err, "this test runs testdata/structural-hash/verify.py")
	out, err := exec.CommandContext(t.Context(), python, "-B", filepath.Join(vectorsDir, "verify.py")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
