package canonicaltree

import (
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/vectors"
)

// exceptions are files of JSONTestSuite that leave the verdict to the parser
// (i_, and all of test_transform), or that the suite accepts and we refuse.
var exceptions = map[string]struct {
	accepted bool
	reason   string
}{
	"y_object_duplicated_key.json":           {false, "duplicate names: RFC 7493, section 2.3"},
	"y_object_duplicated_key_and_value.json": {false, "duplicate names: RFC 7493, section 2.3"},

	"i_number_double_huge_neg_exp.json":   {true, "numbers are never turned into floating point"},
	"i_number_huge_exp.json":              {true, "numbers are never turned into floating point"},
	"i_number_neg_int_huge_exp.json":      {true, "numbers are never turned into floating point"},
	"i_number_pos_double_huge_exp.json":   {true, "numbers are never turned into floating point"},
	"i_number_real_neg_overflow.json":     {true, "numbers are never turned into floating point"},
	"i_number_real_pos_overflow.json":     {true, "numbers are never turned into floating point"},
	"i_number_real_underflow.json":        {true, "numbers are never turned into floating point"},
	"i_number_too_big_neg_int.json":       {true, "numbers have any length"},
	"i_number_too_big_pos_int.json":       {true, "numbers have any length"},
	"i_number_very_big_negative_int.json": {true, "numbers have any length"},

	"i_object_key_lone_2nd_surrogate.json":                {false, "lone surrogate"},
	"i_string_1st_surrogate_but_2nd_missing.json":         {false, "lone surrogate"},
	"i_string_1st_valid_surrogate_2nd_invalid.json":       {false, "lone surrogate"},
	"i_string_incomplete_surrogate_and_escape_valid.json": {false, "lone surrogate"},
	"i_string_incomplete_surrogate_pair.json":             {false, "lone surrogate"},
	"i_string_incomplete_surrogates_escape_valid.json":    {false, "lone surrogate"},
	"i_string_invalid_lonely_surrogate.json":              {false, "lone surrogate"},
	"i_string_invalid_surrogate.json":                     {false, "lone surrogate"},
	"i_string_inverted_surrogates_U+1D11E.json":           {false, "lone surrogate"},
	"i_string_lone_second_surrogate.json":                 {false, "lone surrogate"},

	"i_string_UTF-8_invalid_sequence.json":         {false, "invalid UTF-8"},
	"i_string_UTF8_surrogate_U+D800.json":          {false, "invalid UTF-8"},
	"i_string_invalid_utf-8.json":                  {false, "invalid UTF-8"},
	"i_string_iso_latin_1.json":                    {false, "invalid UTF-8"},
	"i_string_lone_utf8_continuation_byte.json":    {false, "invalid UTF-8"},
	"i_string_not_in_unicode_range.json":           {false, "invalid UTF-8"},
	"i_string_overlong_sequence_2_bytes.json":      {false, "invalid UTF-8"},
	"i_string_overlong_sequence_6_bytes.json":      {false, "invalid UTF-8"},
	"i_string_overlong_sequence_6_bytes_null.json": {false, "invalid UTF-8"},
	"i_string_truncated-utf-8.json":                {false, "invalid UTF-8"},

	"i_string_UTF-16LE_with_BOM.json":         {false, "not UTF-8"},
	"i_string_utf16BE_no_BOM.json":            {false, "not UTF-8"},
	"i_string_utf16LE_no_BOM.json":            {false, "not UTF-8"},
	"i_structure_500_nested_arrays.json":      {true, "within the default depth of 512"},
	"i_structure_UTF-8_BOM_empty_object.json": {false, "byte-order mark"},

	"number_-9223372036854775808.json":         {true, "numbers have any length"},
	"number_-9223372036854775809.json":         {true, "numbers have any length"},
	"number_1.0.json":                          {true, "a number"},
	"number_1.000000000000000005.json":         {true, "a number"},
	"number_1000000000000000.json":             {true, "a number"},
	"number_10000000000000000999.json":         {true, "numbers have any length"},
	"number_1e-999.json":                       {true, "numbers are never turned into floating point"},
	"number_1e6.json":                          {true, "a number"},
	"number_9223372036854775807.json":          {true, "numbers have any length"},
	"number_9223372036854775808.json":          {true, "numbers have any length"},
	"object_key_nfc_nfd.json":                  {true, "names are compared by their bytes, never normalised"},
	"object_key_nfd_nfc.json":                  {true, "names are compared by their bytes, never normalised"},
	"object_same_key_different_values.json":    {false, "duplicate names: RFC 7493, section 2.3"},
	"object_same_key_same_value.json":          {false, "duplicate names: RFC 7493, section 2.3"},
	"object_same_key_unclear_values.json":      {false, "duplicate names: RFC 7493, section 2.3"},
	"string_1_escaped_invalid_codepoint.json":  {false, "lone surrogate"},
	"string_1_invalid_codepoint.json":          {false, "invalid UTF-8"},
	"string_2_escaped_invalid_codepoints.json": {false, "lone surrogate"},
	"string_2_invalid_codepoints.json":         {false, "invalid UTF-8"},
	"string_3_escaped_invalid_codepoints.json": {false, "lone surrogate"},
	"string_3_invalid_codepoints.json":         {false, "invalid UTF-8"},
	"string_with_escaped_NULL.json":            {true, "U+0000 is a character like any other"},
}

func TestJSONTestSuite(t *testing.T) {
	files := vectors.Published(t, "JSONTestSuite/test_*/*.json")
	seen := map[string]bool{}
	for _, file := range files {
		name := filepath.Base(file)
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			verdict, listed := exceptions[name]
			if !listed {
				require.Regexp(t, "^[yn]_", name, "the table must have a verdict on it")
				verdict.accepted = name[0] == 'y'
			}
			doc, err := os.ReadFile(file)
			require.NoError(t, err)
			if !verdict.accepted {
				refused(t, string(doc))
				return
			}
			for _, numbers := range []Numbers{Literal, Decimal} {
				root := parse(t, string(doc))
				want, err := referenceEncoding(doc, numbers)
				require.NoError(t, err)
				assert.Equal(t, want, root.AppendEncoding(nil, numbers))
				same(t, numbers, string(doc), string(root.AppendCanonical(nil)))
			}
		})
	}
	for name := range exceptions {
		assert.True(t, seen[name], "%s is in the table and not in the suite", name)
	}
}

func TestNamesAreNotNormalised(t *testing.T) {
	files := vectors.Published(t, "JSONTestSuite/test_transform/object_key_nf*.json")
	require.Len(t, files, 2)
	a, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b, err := os.ReadFile(files[1])
	require.NoError(t, err)
	same(t, Literal, string(a), string(b))
}

// RFC 8785 rewrites numbers, through float64; apart from that, input and output
// of its samples are equal.
func TestJCS(t *testing.T) {
	for _, file := range vectors.Published(t, "jcs/input/*.json") {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(file)
			require.NoError(t, err)
			out, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "output", name))
			require.NoError(t, err)
			digits, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "outhex", strings.TrimSuffix(name, ".json")+".txt"))
			require.NoError(t, err)
			fromHex, err := hex.DecodeString(strings.Join(strings.Fields(string(digits)), ""))
			require.NoError(t, err)
			Diff(parse(t, string(in)), parse(t, string(out)), func(p Path, a, b Node) bool {
				assert.Equal(t, Number, a.Kind(), p)
				assert.Equal(t, Number, b.Kind(), p)
				x, errX := strconv.ParseFloat(string(a.Raw()), 64)
				y, errY := strconv.ParseFloat(string(b.Raw()), 64)
				assert.NoError(t, errors.Join(errX, errY))
				assert.Equal(t, x, y, p)
				return true
			})
			same(t, Literal, string(out), string(fromHex))
		})
	}
}

// The samples of RFC 8785 numbers, each the shortest text of some float64, have
// the normal form that math/big computes, and no two share a digest.
func TestJCSNumbers(t *testing.T) {
	seen := map[Digest]string{}
	for _, file := range vectors.Published(t, "jcs/numbers/*.txt") {
		lines, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(lines)) {
			_, literal, ok := strings.Cut(strings.TrimSpace(line), ",")
			require.True(t, ok)
			want, err := referenceEncoding([]byte(literal), Decimal)
			require.NoError(t, err)
			root := parse(t, literal)
			require.Equal(t, want, root.AppendEncoding(nil, Decimal), literal)
			d := root.Sum(Decimal)
			if other, ok := seen[d]; ok {
				require.Equal(t, other, literal)
			}
			seen[d] = literal
		}
	}
}
