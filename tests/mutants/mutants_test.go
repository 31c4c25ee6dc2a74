package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every fault has its place in the code. Whether the tests find the faults is shown by make
// mutants, which also names tests that were renamed.
func TestFaultsMatchTheCode(t *testing.T) {
	require.NoError(t, errors.Join(check("../..", mutants)...))
	require.GreaterOrEqual(t, len(mutants), 60)
	for i := range mutants {
		p := mutants[i].place()
		if !declares(filepath.Join("../..", p.in), top(p.test)) {
			t.Logf("%s: %s has no test %s; its whole package is run", mutants[i].name(), p.in, p.test)
		}
	}
}

const tokenCode = `package code

// accepts is commented.
func (w *worker) accepts(o *ownership) bool {
	return o.stale == nil && // a reason
		w.unpublished[o.n] < 5
}

func other(o *ownership) bool { return o.stale == nil }
`

func TestLocate(t *testing.T) {
	fault := mutant{in: "code", fn: "worker.accepts", find: "_1._2 == nil && _3._4[_1._5] <", put: "_1._2 == nil && _1._5 <"}
	for name, c := range map[string]struct {
		code  string
		fault func(m *mutant)
		want  string // in the faulty code
		err   string
	}{
		"as it is":                {want: "return o.stale == nil && o.n < 5"},
		"another file and names":  {code: `func (x *worker) accepts(p *owner) bool { return p.why == nil && x.bytes[p.number] < 5 }`, want: "return p.why == nil && p.number < 5"},
		"another function":        {code: `func takes(p *owner) bool { return p.why == nil && x.bytes[p.number] < 5 }`, want: "p.number < 5"},
		"not the same name twice": {code: `func takes(p *owner) bool { return p.why == nil && x.bytes[q.number] < 5 }`, err: "nothing in the code matches"},
		"two places":              {fault: func(m *mutant) { m.fn, m.find = "gone", "_1._2 == nil" }, err: "2 places match"},
		"text":                    {fault: func(m *mutant) { m.fn, m.find, m.put = "", "SET a = ? WHERE b", "SET a = 1 WHERE b" }, code: "const sql = `UPDATE t SET a = ?\n\tWHERE b`", want: "SET a = 1 WHERE b`"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(root, "code"), 0o700))
			code := tokenCode
			if c.code != "" {
				code = "package code\n\n" + c.code + "\n"
			}
			require.NoError(t, os.WriteFile(filepath.Join(root, "code", "a.go"), []byte(code), 0o600))
			m := fault
			if c.fault != nil {
				c.fault(&m)
			}
			found, err := locate(root, &m)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Contains(t, string(found.text), c.want)
		})
	}
}

func TestCheckNamesTheFaultsThatDoNotMatch(t *testing.T) {
	good := mutants[0]
	gone, twice, empty := good, good, good
	gone.in, gone.rule = "decide/none", "a"
	twice.fn, twice.find, twice.rule = "gone", "return", "b"
	empty.put, empty.rule = empty.find, "c"
	wrong := check("../..", []mutant{good, gone, twice, empty, good})
	require.Len(t, wrong, 4)
	for i, says := range []string{"nothing in the code matches", "places match", "it changes nothing", "two of this name"} {
		require.ErrorContains(t, wrong[i], says)
	}
}
