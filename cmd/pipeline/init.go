package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// starter has the answers for a first configuration.
type starter struct {
	from, entity, customer, projection string
	sees                               []string
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
			"terminal it asks; elsewhere --from, --entity and --sees answer. Existing files are not overwritten.\n\n" +
			"Events come from a file of JSON lines, a Kafka topic (kafka://broker:9092/topic), or HTTP requests (http). A missing\n" +
			"file is created, with one event to begin with. The customer's updates are written to a file.",
		Example: "  weir init\n  weir init shop --from events.jsonl --entity id --sees id,price\n" +
			"  weir init shop --from kafka://broker:9092/products --entity product.id --sees product.name,product.price",
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	c.Flags().StringVar(&o.s.from, "from", "", "where events come from: a file, kafka://broker:9092/topic, or http")
	c.Flags().StringVar(&o.s.entity, "entity", "", "the member of an event that names its entity, for instance product.id")
	c.Flags().StringSliceVar(&o.s.sees, "sees", nil, "what the customer sees: members, separated by commas")
	c.Flags().StringVar(&o.s.customer, "customer", "acme", "name of the customer")
	c.MarkFlagsRequiredTogether("from", "entity", "sees")
	_ = c.MarkFlagFilename("from", "jsonl", "json")
	return c
}

func (o *initOptions) run(cmd *cobra.Command, args []string) error {
	dir := "."
	if len(args) > 0 {
		dir = args[0]
	}
	if o.s.from == "" {
		if !isTerminal(o.in) || !isTerminal(o.err) {
			return usageOf(cmd, errors.New("there is no terminal to ask: --from, --entity and --sees are needed"))
		}
		if err := askStarter(cmd.Context(), o.app, dir, &o.s); err != nil {
			return err
		}
	}
	o.s.projection = "first"
	return writeStarter(o.app, dir, o.s)
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
		// A read of a terminal cannot be ended; this one ends with the process.
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
	s.from = ask("Where do events come from: a file of JSON lines, kafka://broker:9092/topic, or http?", "events.jsonl")
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
			"sources:\n  events:\n" + source + "    entity: " + quote(s.entity) + "\n" +
			"customers: [\"customers/*.yaml\"]\n", false},
		{customer, s.view("", "file: {path: "+quote("../out/"+s.customer+".jsonl")+"}"), false},
	}
	if example != "" {
		files = append(files, newFile{inFolder(dir, s.from), example, true})
	}
	made, err := writeNew(files)
	if err != nil {
		return err
	}
	a.config = main
	if _, err := a.read(); err != nil {
		return errors.Join(a.configError(err, main), removeAll(made))
	}
	if a.json {
		return a.printJSON(map[string]any{"files": made})
	}
	for _, path := range made {
		fmt.Fprintf(a.out, "made %s\n", path)
	}
	fmt.Fprintf(a.out, "\nNow:\n  weir run -c %s\n", main)
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
	if s.from == "http" {
		return "    http: {} # POST /v1/sources/events/events\n", ""
	}
	if address, ok := strings.CutPrefix(s.from, "kafka://"); ok {
		brokers, topic, _ := strings.Cut(address, "/")
		var list []string
		for b := range strings.SplitSeq(brokers, ",") {
			list = append(list, quote(b))
		}
		return "    kafka: {brokers: [" + strings.Join(list, ", ") + "], topic: " + quote(topic) + "}\n", ""
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
	return "    file: {path: " + quote(s.from) + "}\n", string(text) + "\n"
}

// view is the customer's file, with a filter, if it has one, and a sink.
func (s *starter) view(when, sink string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "customer: %s\nprojections:\n  %s:\n", quote(s.customer), quote(s.projection))
	if when != "" {
		fmt.Fprintf(&b, "    when: %s\n", quote(when))
	}
	b.WriteString("    fields: # what it sees: name there, and path in the merged document\n")
	for _, field := range s.sees {
		name, path, named := strings.Cut(strings.TrimSpace(field), "=")
		if !named {
			path = name
		}
		fmt.Fprintf(&b, "      %s: %s\n", quote(name), quote(path))
	}
	kind, _, _ := strings.Cut(sink, ":")
	fmt.Fprintf(&b, "    deliver:\n      %s: {%s}\n", kind, sink)
	return b.String()
}
