package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// starter has the answers for a first configuration.
type starter struct {
	from, entity, customer, projection string
	sees, tables                       []string
	database                           *database // the database whose tables are read, nil for other sources
}

type initOptions struct {
	*app
	s starter
}

func newInitCommand(a *app) *cobra.Command {
	o := &initOptions{app: a}
	c := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write a configuration that runs, from three answers",
		Long: "Write a configuration that runs, with one source and one customer, into DIR, the working folder unless it is named. On a\n" +
			"terminal it asks; elsewhere --from, --sees and --entity (or --tables) answer. Existing files are not overwritten.\n\n" +
			"Events come from tables of PostgreSQL (postgres://…, or a variable that has the URL: '${SHOP_URL}'), a file of JSON\n" +
			"lines, a Kafka topic (kafka://broker:9092/topic), or HTTP requests (http). A missing file is created, with one event.\n" +
			"The URL of a database is never written: the file refers to its variable. The entity is the primary key of the first\n" +
			"table; a further table needs a unique foreign key to it, and appears below its own name. weir doctor then checks it.\n" +
			"The customer's updates are written to a file.",
		Example: "  weir init\n  weir init shop --from '${SHOP_URL}' --tables public.orders,public.shipments --sees id,state,shipments.carrier\n" +
			"  weir init shop --from events.jsonl --entity id --sees id,price\n" +
			"  weir init shop --from kafka://broker:9092/products --entity product.id --sees product.name,product.price",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	c.Flags().StringVar(&o.s.from, "from", "", "where events come from: postgres://…, '${VARIABLE}', a file, kafka://broker:9092/topic, or http")
	c.Flags().StringSliceVar(&o.s.tables, "tables", nil, "the tables of a database, as schema.name, separated by commas")
	c.Flags().StringVar(&o.s.entity, "entity", "", "the member of an event that names its entity, for instance product.id")
	c.Flags().StringSliceVar(&o.s.sees, "sees", nil, "what the customer sees: members, separated by commas")
	c.Flags().StringVar(&o.s.customer, "customer", "acme", "name of the customer")
	c.MarkFlagsMutuallyExclusive("tables", "entity")
	_ = c.MarkFlagFilename("from", "jsonl", "json")
	return c
}

func (o *initOptions) run(cmd *cobra.Command, args []string) error {
	dir := "."
	if len(args) > 0 {
		dir = args[0]
	}
	o.s.projection = "first"
	if o.s.from == "" {
		if len(o.s.sees)+len(o.s.tables) > 0 || o.s.entity != "" || !isTerminal(o.in) || !isTerminal(o.err) {
			return usageOf(cmd, errors.New("there is no terminal to ask: --from, --sees and --entity (or --tables) are needed"))
		}
		if err := askStarter(cmd.Context(), o.app, dir, &o.s); err != nil {
			return err
		}
	} else if err := o.s.enter(cmd.Context(), o.app); err != nil {
		return err
	}
	switch {
	case o.s.database == nil && len(o.s.tables) > 0:
		return usageOf(cmd, errors.New("--tables are of a database: --from postgres://… is needed"))
	case o.s.database != nil && len(o.s.tables) == 0:
		return usageOf(cmd, fmt.Errorf("--tables is needed: %s", o.s.database.list()))
	case o.s.database == nil && o.s.entity == "" || len(o.s.sees) == 0:
		return usageOf(cmd, errors.New("--from needs --sees, and --entity (of a database: --tables)"))
	}
	if o.s.database != nil {
		if err := o.s.database.choose(o.s.tables, o.s.sees); err != nil {
			return err
		}
	}
	if err := writeStarter(o.app, dir, o.s); err != nil || o.s.database == nil {
		return err
	}
	return o.s.database.examine(cmd.Context(), o.app)
}

// scheme is the scheme of a URL.
var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:/`)

// enter checks the way in. A variable is replaced by its value, and of a database the tables
// are listed.
func (s *starter) enter(ctx context.Context, a *app) error {
	from, variable := s.from, ""
	if reference := variableOf(s.from); reference != "" {
		value, ok := a.env(reference)
		if !ok {
			return &usageError{fmt.Errorf("--from: the variable %s is not set", reference)}
		}
		from, variable = value, reference
	}
	switch {
	case strings.HasPrefix(from, "postgres://"), strings.HasPrefix(from, "postgresql://"):
		var err error
		s.database, err = openDatabase(ctx, a, from, variable)
		return err
	case variable != "":
		return &usageError{fmt.Errorf("--from: the variable %s does not have the URL of a PostgreSQL database", variable)}
	case strings.HasPrefix(from, "kafka://"):
		if strings.Contains(from, "@") {
			return &usageError{errors.New("--from: user and password of Kafka are written below kafka.sasl, as references")}
		}
	case scheme.MatchString(from):
		return &usageError{fmt.Errorf("--from %s…: no such way in; want postgres://…, kafka://broker:9092/topic, http or a file. "+
			"MySQL and other databases come through Debezium and Kafka", from[:strings.Index(from, ":")+1])}
	}
	return nil
}

// askStarter asks the three questions and proposes the members of the first event.
func askStarter(ctx context.Context, a *app, dir string, s *starter) (err error) {
	lines := bufio.NewScanner(a.in)
	ask := func(question, proposed string) string {
		if err != nil {
			return ""
		}
		fmt.Fprintf(a.err, "%s [%s] ", question, proposed)
		read := make(chan bool, 1)
		// A read of a terminal cannot be ended. This one ends with the process.
		go func() { read <- lines.Scan() }()
		select {
		case ok := <-read:
			if !ok {
				err = errors.New("nothing was written")
			}
		case <-ctx.Done():
			err = errors.New("nothing was written")
			return ""
		}
		if answer := strings.TrimSpace(lines.Text()); answer != "" {
			return answer
		}
		return proposed
	}
	s.from = ask("Where do events come from: postgres://user@host/database, a file of JSON lines, kafka://broker:9092/topic, or http?", "events.jsonl")
	if err != nil {
		return err
	}
	if err := s.enter(ctx, a); err != nil {
		return err
	}
	if s.database != nil {
		fmt.Fprintln(a.err, s.database.list())
		s.tables = strings.Split(ask("Which tables? The first has the entities; others appear in it", s.database.proposed()), ",")
		s.sees = strings.Split(ask("What does your first customer see: columns, separated by commas?", strings.Join(s.database.columns(s.tables), ",")), ",")
		return err
	}
	members := membersOf(inFolder(dir, s.from))
	entity, sees := "id", "id,name"
	if len(members) > 0 {
		entity, sees = members[0], strings.Join(members, ",")
		for _, m := range members {
			if strings.HasSuffix(strings.ToLower(m), "id") {
				entity = m
				break
			}
		}
	}
	s.entity = ask("Which member of an event names its entity?", entity)
	s.sees = strings.Split(ask("What does your first customer see: members, separated by commas?", sees), ",")
	return err
}

// inFolder returns where a path of a configuration in dir leads.
func inFolder(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// membersOf returns the members of the first event of a file, in their order of names.
func membersOf(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	var event map[string]json.RawMessage
	if json.NewDecoder(f).Decode(&event) != nil {
		return nil
	}
	names := make([]string, 0, len(event))
	for name := range event {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// writeStarter writes the files, checks them as validate does, and takes them away again when
// they are not fine.
func writeStarter(a *app, dir string, s starter) (err error) {
	main, customer := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "customers", s.customer+".yaml")
	if filepath.Base(s.customer) != s.customer {
		return &usageError{fmt.Errorf("--customer %q: that is no name", s.customer)}
	}
	source, example := s.source()
	files := []newFile{
		{main, "# Everything runs inside the process: state and logs are in data/.\n" +
			"# weir schema prints the JSON Schema of this file, for editors.\n" +
			source + "customers: [\"customers/*.yaml\"]\n", false},
		{customer, s.view("", "file: {path: "+plain("../out/"+s.customer+".jsonl")+"}"), false},
	}
	if example != "" {
		files = append(files, newFile{inFolder(dir, s.from), example, true})
	}
	made, err := writeNew(files)
	if err != nil {
		return err
	}
	a.config = main
	if s.database != nil {
		a.env = s.database.env(a.env)
	}
	if _, err := a.read(); err != nil {
		return errors.Join(a.configError(err, main), removeAll(made))
	}
	if a.json {
		return a.printJSON(map[string]any{"files": made})
	}
	for _, path := range made {
		fmt.Fprintf(a.out, "made %s\n", path)
	}
	fmt.Fprint(a.out, "\nNow:\n")
	if s.database != nil && !s.database.known {
		fmt.Fprintf(a.out, "  export %s='…'   # the URL of the database\n", s.database.variable)
	}
	fmt.Fprintf(a.out, "  weir run -c %s\n", main)
	if s.from == "http" {
		fmt.Fprintln(a.out, `  curl -H 'Content-Type: application/json' -d '{…}' http://127.0.0.1:9601/v1/sources/events/events`)
	}
	fmt.Fprintf(a.out, "What %s gets comes to %s, when its view changes and not before.\n", s.customer, filepath.Join(dir, "out", s.customer+".jsonl"))
	return nil
}

// newFile is a file to be made.
type newFile struct {
	path, text string
	optional   bool // it may be there
}

// writeNew makes files, all or none, and overwrites nothing.
func writeNew(files []newFile) (made []string, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, removeAll(made))
		}
	}()
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return made, err
		}
		file, err := os.OpenFile(f.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		switch {
		case errors.Is(err, os.ErrExist) && f.optional:
			continue
		case errors.Is(err, os.ErrExist):
			return made, hinted(fmt.Errorf("%s is there already, and nothing is overwritten", f.path), "choose another folder or name")
		case err != nil:
			return made, err
		}
		made = append(made, f.path)
		_, err = file.WriteString(f.text)
		if err := errors.Join(err, file.Close()); err != nil {
			return made, err
		}
	}
	return made, nil
}

func removeAll(files []string) (err error) {
	for _, path := range files {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// source returns the lines of the source, and for a file an event to begin with.
func (s *starter) source() (lines, example string) {
	if s.database != nil {
		return s.database.source(), ""
	}
	const head = "sources:\n  events:\n"
	entity := "    entity: " + plain(s.entity) + "\n"
	if s.from == "http" {
		return head + "    http: {} # POST /v1/sources/events/events\n" + entity, ""
	}
	if address, ok := strings.CutPrefix(s.from, "kafka://"); ok {
		brokers, topic, _ := strings.Cut(address, "/")
		var list []string
		for b := range strings.SplitSeq(brokers, ",") {
			list = append(list, quote(b))
		}
		return head + "    kafka: {brokers: [" + strings.Join(list, ", ") + "], topic: " + plain(topic) + "}\n" + entity, ""
	}
	event := map[string]any{}
	for i, path := range append([]string{s.entity}, s.sees...) {
		at, names := event, strings.Split(strings.TrimSpace(path), ".")
		for _, name := range names[:len(names)-1] {
			inner, ok := at[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
		if last := names[len(names)-1]; at[last] == nil {
			at[last] = "something"
			if i == 0 {
				at[last] = "B-007"
			}
		}
	}
	text, _ := json.Marshal(event) // names and texts always have a JSON form
	return head + "    file: {path: " + plain(s.from) + "}\n" + entity, string(text) + "\n"
}

// view is the customer's file, with a filter, if it has one, and a sink.
func (s *starter) view(when, sink string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "customer: %s\nprojections:\n  %s:\n", plain(s.customer), plain(s.projection))
	if when != "" {
		fmt.Fprintf(&b, "    when: %s\n", quote(when))
	}
	b.WriteString("    fields: # what it sees: name there, and path in the merged document\n")
	for _, field := range s.sees {
		name, path, named := strings.Cut(strings.TrimSpace(field), "=")
		if !named {
			path = name
		}
		fmt.Fprintf(&b, "      %s: %s\n", plain(name), plain(path))
	}
	kind, _, _ := strings.Cut(sink, ":")
	fmt.Fprintf(&b, "    deliver:\n      %s: {%s}\n", kind, sink)
	return b.String()
}
