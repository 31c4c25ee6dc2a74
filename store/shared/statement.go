package shared

import (
	"crypto/rand"
	"embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Statement is one statement of the .sql files, in the form of each database.
type Statement struct {
	Postgres, SQLite string
	// CustomPlan asks for a plan that depends on the parameters.
	CustomPlan bool
	// LockTimeout bounds the wait for a row's lock: the caller has a batch of others.
	LockTimeout bool
	name        string
	parameters  []string
}

// Call is a statement with its arguments, in the order of its parameters: integers, texts,
// bytes, times, nil, and lists of int64 or string.
type Call struct {
	*Statement
	Args []any
	// Tenant, if given, is the tenant whose rows the call reaches in tables of tenants.
	Tenant string
}

// AllTenants is the Tenant of calls of the pipeline itself.
const AllTenants = "\x00"

// args are arguments by name.
type args map[string]any

//go:embed *.sql
var files embed.FS

// FileSession is the session where the store is a file: a restored file is opened by another
// process.
var FileSession = rand.Text() //nolint:gochecknoglobals // never written

var statements = parse(files) //nolint:gochecknoglobals // never written

// Statements returns all statements by name, for tests of their plans.
func Statements() map[string]*Statement { return statements }

// call binds arguments; a wrong name is a bug that the first call shows.
func call(name string, a args) Call {
	s := statements[name]
	if s == nil || len(s.parameters) != len(a) {
		panic(fmt.Sprintf("statement %q with %d arguments", name, len(a)))
	}
	c := Call{Statement: s, Args: make([]any, len(a))}
	for i, p := range s.parameters {
		v, ok := a[p]
		if !ok {
			panic(fmt.Sprintf("statement %q has no argument %q", name, p))
		}
		c.Args[i] = v
	}
	return c
}

func parse(files embed.FS) map[string]*Statement {
	all := map[string]*Statement{}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		text, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		for _, part := range strings.Split(string(text), "-- name: ")[1:] {
			head, body, _ := strings.Cut(part, "\n")
			name, options, _ := strings.Cut(head, " ")
			if all[name] != nil {
				panic("two statements " + name)
			}
			all[name] = newStatement(name, body, options)
		}
	}
	return all
}

var (
	comment   = regexp.MustCompile(`(?m)^\s*--.*\n`)
	parameter = regexp.MustCompile(`IN \{(\w+)\}|:(\w+)`)
)

func newStatement(name, body, options string) *Statement {
	body = strings.TrimSuffix(strings.TrimSpace(comment.ReplaceAllString(body, "")), ";")
	s := &Statement{name: name, CustomPlan: options == "custom plan", LockTimeout: options == "lock timeout"}
	number := map[string]string{}
	bind := func(list, one string) string {
		return parameter.ReplaceAllStringFunc(body, func(match string) string {
			m := parameter.FindStringSubmatch(match)
			p := m[1] + m[2]
			if number[p] == "" {
				s.parameters = append(s.parameters, p)
				number[p] = strconv.Itoa(len(s.parameters))
			}
			if m[1] != "" {
				return strings.ReplaceAll(list, "#", number[p])
			}
			return one + number[p]
		})
	}
	s.Postgres = strings.ReplaceAll(bind("= ANY($#)", "$"), "{session}", "pg_postmaster_start_time()")
	s.SQLite = strings.ReplaceAll(bind("IN (SELECT value FROM json_each(?#))", "?"), "{session}", "'"+FileSession+"'")
	return s
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
		SQLite:   repeat(s.SQLite, func(int) string { return "?" }), name: s.name,
	}
}
