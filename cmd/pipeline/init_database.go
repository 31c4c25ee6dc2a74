package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/seed-86dfc502/weir/operate/doctor"
	"github.com/seed-86dfc502/weir/sources/postgres"
)

// database is a PostgreSQL database that a first configuration reads.
type database struct {
	url, variable string // the variable that holds the URL
	known         bool   // it does so already
	name          string // of the source
	tables        []postgres.TableInfo
	chosen        []chosenTable
}

// chosenTable is a table with the columns that hold the id of its entity.
type chosenTable struct {
	*postgres.TableInfo
	entity []string
	mount  string // empty for the first
}

var (
	reference = regexp.MustCompile(`^\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))$`)
	notInName = regexp.MustCompile(`[^a-z0-9_-]+`)
)

// variableOf returns the variable that a text such as ${SHOP_URL} refers to, or empty for others.
func variableOf(text string) string {
	m := reference.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	return cmp.Or(m[1], m[2])
}

// openDatabase lists the tables of a database. The source is named after the variable that has
// the URL, or else both after the database.
func openDatabase(ctx context.Context, a *app, url, variable string) (*database, error) {
	name, err := postgres.DatabaseName(url)
	if err != nil {
		return nil, &usageError{fmt.Errorf("--from: %w", err)}
	}
	if variable != "" {
		name = strings.TrimSuffix(strings.ToLower(variable), "_url")
	}
	name = strings.TrimLeft(notInName.ReplaceAllString(strings.ToLower(name), "_"), "_-")
	d := &database{url: url, variable: variable, name: cmp.Or(name, "database")}
	if variable == "" {
		d.variable = strings.ToUpper(strings.ReplaceAll(d.name, "-", "_")) + "_URL"
		if d.variable[0] >= '0' && d.variable[0] <= '9' {
			d.variable = "DATABASE_" + d.variable
		}
	}
	value, _ := a.env(d.variable)
	d.known = value == url
	if d.tables, err = postgres.ListTables(ctx, url); err != nil {
		return nil, fmt.Errorf("the database: %w", err)
	}
	if len(d.tables) == 0 {
		return nil, errors.New("the database has no table that this user may read")
	}
	return d, nil
}

// env returns an environment that has the URL.
func (d *database) env(outer func(string) (string, bool)) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == d.variable {
			return d.url, true
		}
		return outer(name)
	}
}

// list names the tables, each with its key and size.
func (d *database) list() string {
	var words []string
	for i := range d.tables {
		t := &d.tables[i]
		key := "no primary key"
		if len(t.Key) > 0 {
			key = strings.Join(t.Key, ", ")
		}
		words = append(words, fmt.Sprintf("%s (%s; about %s rows)", t.Name, key, humanize.Comma(int64(t.Rows))))
	}
	return "the database has " + strings.Join(words, ", ")
}

// proposed is the largest table with a primary key.
func (d *database) proposed() string {
	best := &d.tables[0]
	for i := range d.tables {
		if t := &d.tables[i]; len(t.Key) > 0 && (len(best.Key) == 0 || t.Rows > best.Rows) {
			best = t
		}
	}
	return best.Name
}

func (d *database) find(name string) *postgres.TableInfo {
	name = strings.TrimSpace(name)
	if !strings.Contains(name, ".") {
		name = "public." + name
	}
	if i := slices.IndexFunc(d.tables, func(t postgres.TableInfo) bool { return t.Name == name }); i >= 0 {
		return &d.tables[i]
	}
	return nil
}

// mountOf is the member under which the rows of a further table appear.
func mountOf(table string) string { return table[strings.Index(table, ".")+1:] }

// columns are the columns of tables that a customer can see, in their order.
func (d *database) columns(tables []string) (all []string) {
	for i, name := range tables {
		t := d.find(name)
		if t == nil {
			continue
		}
		for _, column := range t.Columns {
			if i > 0 {
				column = mountOf(t.Name) + "." + column
			}
			all = append(all, column)
		}
	}
	return all
}

// choose takes tables and checks that their rows meet and that the customer sees columns of them.
func (d *database) choose(tables, sees []string) error {
	for _, name := range tables {
		t := d.find(name)
		switch {
		case t == nil:
			return &usageError{fmt.Errorf("--tables: there is no table %s; %s", strings.TrimSpace(name), d.list())}
		case slices.ContainsFunc(d.chosen, func(c chosenTable) bool { return c.Name == t.Name }):
			return &usageError{fmt.Errorf("--tables: %s is there twice", t.Name)}
		case len(d.chosen) == 0 && len(t.Key) == 0:
			return &usageError{fmt.Errorf("--tables: %s has no primary key to name its entities by", t.Name)}
		case len(d.chosen) == 0:
			d.chosen = append(d.chosen, chosenTable{t, t.Key, ""})
			continue
		}
		first := d.chosen[0].TableInfo
		columns, one := t.Meets(first)
		if len(columns) == 0 || !one {
			why := fmt.Sprintf("its rows have no unique foreign key to %s", first.Name)
			if len(columns) > 0 {
				why = fmt.Sprintf("several rows may have one %s", strings.Join(columns, ", "))
			}
			return hinted(&usageError{fmt.Errorf("--tables: %s cannot be part of %s: %s", t.Name, first.Name, why)},
				"entities of several tables meet by the id of the first: join in the database (docs/databases.md, Several tables), or leave it out")
		}
		d.chosen = append(d.chosen, chosenTable{t, columns, mountOf(t.Name)})
	}
	known := d.columns(tables)
	for _, field := range sees {
		_, path, named := strings.Cut(strings.TrimSpace(field), "=")
		if !named {
			path = strings.TrimSpace(field)
		}
		if !slices.ContainsFunc(known, func(column string) bool { return path == column || strings.HasPrefix(path, column+".") }) {
			return &usageError{fmt.Errorf("--sees: there is no column %s; the tables have %s", path, strings.Join(known, ", "))}
		}
	}
	return nil
}

// plainText matches a text that YAML reads as text without quotes.
var plainText = regexp.MustCompile(`^(\.\./|[a-z_])[A-Za-z0-9_./-]*$`)

// plain is quote for names, which most often need no quotes.
func plain(s string) string {
	if plainText.MatchString(s) && !keywords.MatchString(s) {
		return s
	}
	return quote(s)
}

// source is the part of the main file that reads the tables.
func (d *database) source() string {
	var b strings.Builder
	fmt.Fprintf(&b, "sources:\n  %s:\n    postgres:\n      url: %s\n      tables:\n", d.name, quote("${"+d.variable+"}"))
	for _, t := range d.chosen {
		var entity []string
		for _, column := range t.entity {
			entity = append(entity, plain(column))
		}
		key := entity[0]
		if len(entity) > 1 {
			key = "[" + strings.Join(entity, ", ") + "]"
		}
		fmt.Fprintf(&b, "        %s: {entity: %s", plain(t.Name), key)
		if t.mount != "" {
			fmt.Fprintf(&b, ", mount: %s", plain(t.mount))
		}
		b.WriteString("}\n")
	}
	if len(d.chosen) > 1 {
		first := strings.ReplaceAll(strings.TrimPrefix(d.chosen[0].Name, "public."), ".", "_")
		fmt.Fprintf(&b, "merge: {required: [%s]} # nothing is sent before the row of the first table\n", plain(d.name+"_"+first))
	}
	return b.String()
}

// examine prints what doctor finds. Faults are an error. The files stay.
func (d *database) examine(ctx context.Context, a *app) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	if a.json {
		return nil // weir doctor --json is a document of its own
	}
	fmt.Fprintf(a.out, "\nweir doctor -c %s says:\n", a.config)
	findings := doctor.Examine(ctx, cfg, doctor.Options{})
	printFindings(a, findings)
	if doctor.Faults(findings) > 0 {
		return errors.New("the files are written, and the database is not ready: follow the lines that say down")
	}
	return nil
}
