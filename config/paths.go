package config

import (
	"fmt"
	"regexp"
	"strings"
)

// These are valid gjson paths too, of members with unusual names. Most users who write one mean
// another notation. A backslash before the sign makes it a name.
var (
	bracketed    = regexp.MustCompile(`\[(\d*|\*|'[^']*'|"[^"]*")\]`)
	calls        = regexp.MustCompile(`^[A-Za-z_]+\(.*\)$`)
	calculates   = regexp.MustCompile(` (\+|\*|\?\?|==|!=|&&|\|\|) `)
	singleQuoted = regexp.MustCompile(`#\([^)]*[=<>%]\s*'`)
)

// checkNotation finds a path that can only be a mistake: in the notation of
// JSONPath, of JSON Pointer, or of an expression.
func checkNotation(path string) *mistake {
	switch {
	case strings.Contains(path, `\`):
		return nil
	case singleQuoted.MatchString(path):
		return &mistake{problem: "has single quotes in a query, which gjson takes as part of the text", fix: "write " + strings.ReplaceAll(path, "'", `"`)}
	case path == "$" || strings.HasPrefix(path, "$.") || strings.HasPrefix(path, "$["):
		if rest := strings.TrimPrefix(dotted(path[1:]), "."); rest != "" {
			return &mistake{problem: "is written in JSONPath", fix: fmt.Sprintf(`write %s; a member whose name is $ is \$`, rest)}
		}
		return &mistake{problem: "is written in JSONPath", fix: `write @this for the whole document; a member whose name is $ is \$`}
	case strings.HasPrefix(path, "/"):
		return &mistake{problem: "is written as a JSON Pointer", fix: fmt.Sprintf(`write %s; write \/ for a slash that begins a name`, strings.ReplaceAll(path[1:], "/", "."))}
	case calculates.MatchString(path) || calls.MatchString(path):
		return &mistake{problem: "is an expression, and a path only finds a value", fix: `name one value; write a backslash before a sign that is part of a name`}
	case strings.HasPrefix(path, "[") || strings.HasPrefix(path, "{"): // a path of several
		return nil
	case bracketed.MatchString(path):
		return &mistake{problem: "has brackets, which gjson takes as part of a name", fix: fmt.Sprintf(`write %s; write \[ for a bracket in a name`, dotted(path))}
	}
	return nil
}

// dotted writes the steps in brackets of a path as gjson has them.
func dotted(path string) string {
	return bracketed.ReplaceAllStringFunc(path, func(step string) string {
		switch step = strings.Trim(step, `[]'"`); step {
		case "", "*":
			return ".#"
		}
		return "." + step
	})
}
