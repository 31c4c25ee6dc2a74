package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// registered finds the metrics that the code makes: name to type and labels.
// It reads the source, because a registry does not show a metric that has no
// label values yet.
func registered(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	files := token.NewFileSet()
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d != nil && generated(path, d) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/tests/") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
				if name, kind, labels := metricOf(call); name != "" {
					found[name] = strings.TrimSpace(kind + " " + strings.Join(labels, ", "))
				}
			}
			return true
		})
		return nil
	}))
	require.NotEmpty(t, found)
	found["weir_router_handler_execution_time_seconds"] = "histogram handler_name, success" // Watermill registers it
	return found
}

// metricOf understands prometheus.NewCounterVec and its kin, and a helper
// vec(name, help, labels...) of gauges.
func metricOf(call *ast.CallExpr) (name, kind string, labels []string) {
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		options, ok := call.Args[0].(*ast.CompositeLit)
		if !ok || !strings.HasPrefix(f.Sel.Name, "New") {
			return "", "", nil
		}
		for _, e := range options.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Name" {
					name = text(kv.Value)
				}
			}
		}
		kind = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(f.Sel.Name, "New"), "Vec"))
		if len(call.Args) > 1 {
			if list, ok := call.Args[1].(*ast.CompositeLit); ok {
				for _, e := range list.Elts {
					labels = append(labels, text(e))
				}
			}
		}
	case *ast.Ident:
		name, kind = text(call.Args[0]), "gauge"
		if f.Name == "vec" && len(call.Args) > 2 {
			for _, e := range call.Args[2:] {
				labels = append(labels, text(e))
			}
		}
	}
	if !strings.HasPrefix(name, "weir_") {
		return "", "", nil
	}
	return name, kind, labels
}

// text is the value of a string literal; empty for anything else.
func text(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		s, _ := strconv.Unquote(l.Value)
		return s
	}
	return ""
}
