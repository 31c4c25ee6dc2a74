package projections

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// version goes into the fingerprint: it changes when the same Spec begins to
// produce other outputs or matches. expressions is the version of the expression
// library and paths the version of gjson: a new release of either may change the
// meaning of a filter or a path.
const (
	version     = 5
	expressions = "expr-lang/expr v1.17.8"
	paths       = "tidwall/gjson v1.20.0"
)

// Fingerprint writes everything that Project and ReadSet depend on besides the document, in a
// form that no other projection shares, and the versions of the evaluating code. Names are part
// of it. w is to be a hash.Hash: errors of writing are ignored.
func (s *Spec) Fingerprint(w io.Writer) {
	fmt.Fprintf(w, "%q %q\n", s.Customer, s.Name)
	s.Shape(w)
}

// Shape is Fingerprint without the names: projections of one shape show the same of any
// document.
func (s *Spec) Shape(w io.Writer) {
	fmt.Fprintf(w, "projection/%d %q %q\n", version, expressions, paths)
	fmt.Fprintf(w, "%q %t %d\n", s.When, s.OmitEmpty, s.Numbers)
	fingerprintFields(w, s.Fields)
	fingerprintFields(w, s.Carry)
	if !strings.Contains(s.When, "hmac") && !hashes(s.Fields) && !hashes(s.Carry) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s.Secrets)) {
		// The digest represents the secret: another secret makes another projection.
		h := hmac.New(sha256.New, s.Secrets[name])
		h.Write([]byte("weir projection secret"))
		fmt.Fprintf(w, "%q %x\n", name, h.Sum(nil))
	}
}

// hashes reports whether an expression may use a secret.
func hashes(fields []Field) bool {
	return slices.ContainsFunc(fields, func(f Field) bool { return strings.Contains(f.Expr, "hmac") || hashes(f.Each) })
}

func fingerprintFields(w io.Writer, fields []Field) {
	fmt.Fprintf(w, "[%d\n", len(fields))
	for i := range fields {
		f := &fields[i]
		fmt.Fprintf(w, "%q %q %q %s %t %q %t %q %t\n", f.Out, f.Path, f.Expr, f.Same, f.Const != nil, f.Const, f.Default != nil, f.Default, f.Each != nil)
		fingerprintFields(w, f.Each)
	}
}
