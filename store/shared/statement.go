package shared

import (
	"crypto/rand"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/store"
)

//go:generate go run ./internal/statements

// Statement is one statement of the .sql files, in the form of each database.
type Statement struct {
	Postgres, SQLite string
	// CustomPlan asks for a plan that depends on the parameters.
	CustomPlan bool
	// LockTimeout bounds the wait for a row's lock: the caller has a batch of others.
	LockTimeout bool
}

// Call is a statement with its arguments, in the order of its parameters: integers, booleans,
// texts, bytes, times, nil, and lists of int64 or string.
type Call struct {
	*Statement
	Args []any
	// Tenant, if given, is the tenant whose rows the call reaches in tables of tenants.
	Tenant string
}

// AllTenants is the Tenant of calls of the pipeline itself.
const AllTenants = "\x00"

// FileSession is the session where the store is a file: a restored file is opened by another
// process.
var FileSession = rand.Text() //nolint:gochecknoglobals // never written

func newCall(s *Statement, args ...any) Call { return Call{Statement: s, Args: args} }

func (c Call) forTenant(tenant string) Call {
	c.Tenant = tenant
	return c
}

// sanitized replaces NUL and invalid UTF-8, which PostgreSQL refuses, in the texts of a call.
func sanitized(c Call) Call {
	for i, v := range c.Args {
		if text, ok := v.(string); ok {
			c.Args[i] = store.SanitizeText(text)
		}
	}
	return c
}

var place = regexp.MustCompile(`[$?]\d+`)

// times returns an INSERT of n rows, made of one of a single row. Its arguments are those of the
// rows, one after another. SQLite binds parameters without numbers faster.
func (s *Statement) times(n int) *Statement {
	repeat := func(text string, at func(i int) string) string {
		head, row, _ := strings.Cut(text, "VALUES ")
		rows, i := make([]string, n), 0
		for k := range rows {
			rows[k] = place.ReplaceAllStringFunc(row, func(string) string { i++; return at(i) })
		}
		return head + "VALUES " + strings.Join(rows, ", ")
	}
	return &Statement{
		Postgres: repeat(s.Postgres, func(i int) string { return "$" + strconv.Itoa(i) }),
		SQLite:   repeat(s.SQLite, func(int) string { return "?" }),
	}
}
