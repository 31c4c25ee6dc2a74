package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/seed-86dfc502/weir/projections"
	"go.yaml.in/yaml/v4"
)

// Option changes how Load works.
type Option func(*loader)

// AllowUnsetEnv accepts references to missing variables, files and certificates, to check a
// configuration without its secrets. Values that depend on them are not checked, and the Config
// must not be run.
func AllowUnsetEnv() Option { return func(l *loader) { l.allowUnset = true } }

// MainFile reads no customers' files and checks nothing of them: for a command that asks a
// running process while a customer's file is not usable. The Config must not be run.
func MainFile() Option { return func(l *loader) { l.mainFile = true } }

// DefaultMemory is limits.memory, in bytes, where the main file has none; 256 MiB without
// this option.
func DefaultMemory(bytes int64) Option {
	return func(l *loader) { l.memory = Size(bytes) }
}

// loader holds what belongs to one call of Load.
type loader struct {
	config     Config
	main       *document
	memory     Size
	customers  []*document // in the order of the files
	origins    []string    // the customers' first names, in the same order
	owner      []*document // of each projection
	checked    []*document // the file of each check
	env        func(string) (string, bool)
	allowUnset bool
	mainFile   bool
	noFiles    bool       // as decoder.noFiles
	allowed    *allowance // of customers' files
	kinds      Registry
	used       claims // what only one source may use
	faults     Faults
	cache      *Cache    // nil without Reuse
	read       []*cached // the customers' files of this call
}

// Load reads the main file at path and the customers' files that it names. env returns the value
// of an environment variable; nil means the process's own. The error is a *Faults with everything
// that is wrong. No Config is given then. Load needs no network. kinds are those that the files
// may name.
func Load(path string, env func(string) (string, bool), kinds Registry, options ...Option) (*Config, error) {
	if env == nil {
		env = os.LookupEnv
	}
	l := &loader{env: env, kinds: kinds, used: claims{}}
	for _, o := range options {
		o(l)
	}
	l.load(path)
	if len(l.faults.List) > 0 {
		return nil, l.faults.sorted()
	}
	l.config.identify()
	l.cache.keep(l.read, l.config.compiled)
	return &l.config, nil
}

func (l *loader) load(path string) {
	l.main = newDocument(path, &l.faults)
	root := l.main.read()
	if root == nil {
		return
	}
	l.decode(l.main, root, &l.config)
	l.cache.begin(l.main)
	l.config.File = path
	l.allowed = l.allowance()
	if l.mainFile {
		l.applyDerivedDefaults()
		return
	}
	l.readCustomers()
	l.applyDerivedDefaults()
	l.check()
}

// decode reads a document's root into the struct that into points at.
func (l *loader) decode(doc *document, root *yaml.Node, into any) {
	l.decoder(doc).decode(root, reflect.ValueOf(into).Elem(), "", "")
}

func (l *loader) decoder(doc *document) *decoder {
	d := &decoder{doc: doc, env: l.env, allowUnset: l.allowUnset, noFiles: l.noFiles, kinds: l.kinds}
	if doc != l.main {
		d.allowed = l.allowed
	}
	return d
}

// allowance returns the references that the main file opens to customers' files.
func (l *loader) allowance() *allowance {
	a := &allowance{env: l.config.CustomersEnv}
	for i, name := range a.env {
		if path := element("customers_env", i); l.main.known(path) && !allowedEnv.MatchString(name) {
			l.main.fault(path, "is not the name of a variable", `a name, or the beginning of names followed by *, like "ACME_*"`)
		}
	}
	for i, folder := range l.config.CustomersSecrets {
		path := element("customers_secrets", i)
		if folder == "" && l.main.known(path) {
			l.main.fault(path, "is empty", "a folder")
			continue
		}
		a.folders = append(a.folders, l.main.relative(folder))
	}
	return a
}

// readCustomers reads the files that the patterns name, each once.
func (l *loader) readCustomers() {
	seen := map[string]bool{}
	for i, pattern := range l.config.CustomerFiles {
		path := element("customers", i)
		if l.main.values[path].unresolved {
			continue
		}
		files, err := filepath.Glob(l.main.relative(pattern))
		switch {
		case err != nil:
			l.main.fault(path, "is not a pattern", `a pattern, like "customers/*.yaml"`)
		case len(files) == 0:
			l.main.fault(path, "matches no file", "a file's name, or a pattern that matches one")
		}
		slices.Sort(files)
		for _, file := range files {
			if !seen[file] {
				seen[file] = true
				l.readCustomer(file)
			}
		}
	}
}

func (l *loader) readCustomer(file string) {
	doc := newDocument(file, &l.faults)
	if !doc.load() {
		return
	}
	if known := l.cache.find(doc, l.decoder(doc)); known != nil {
		l.addCustomer(known)
		return
	}
	root := doc.parse()
	if root == nil {
		return
	}
	var c CustomerFile
	l.decode(doc, root, &c)
	if len(c.Projections) == 0 && len(c.Checks) == 0 {
		switch {
		case doc.has("projections"):
			doc.faultKey("projections", "is empty", "at least one projection or check")
		case doc.has("checks"):
			doc.faultKey("checks", "is empty", "at least one projection or check")
		default:
			doc.faultAt(doc.place(root), "projections", "is missing", "projections, or checks")
		}
	}
	checkPace(doc, "pace", &c.Pace, nil)
	for p, d := range c.Projections.deliveries() {
		checkPace(doc, member(member(member(member("projections", p.Name), "deliver"), d.Name), "pace"), d.Pace, d)
	}
	c.inheritGuard()
	c.inheritPace()
	l.addCustomer(&cached{doc: doc, content: c})
}

// addCustomer adds a customer's file to the configuration.
func (l *loader) addCustomer(f *cached) {
	c, doc := f.content, f.doc
	if l.cache != nil {
		c = clone(reflect.ValueOf(c)).Interface().(CustomerFile)
	}
	l.read = append(l.read, f)
	if !doc.values["customer"].unresolved && c.Customer != "" {
		if i := slices.Index(l.config.Customers, c.Customer); i >= 0 {
			doc.fault("customer", fmt.Sprintf("is already in %s", l.customers[i].file), "one file per customer")
		}
		checkName(doc, "customer", c.Customer)
	}
	for name, secret := range c.Secrets {
		if path := member("secrets", name); !doc.values[path].unresolved && len(hmacKey(secret)) < leastKey {
			doc.fault(path, "is too short", fmt.Sprintf("at least %d bytes, as openssl rand -base64 32 makes them", leastKey))
		}
	}
	l.config.Customers = append(l.config.Customers, c.Customer)
	l.customers = append(l.customers, doc)
	origin := cmp.Or(c.Was, c.Customer)
	l.origins = append(l.origins, origin)
	for i, p := range c.Projections {
		p.Customer, p.origin, p.leaving, p.Secrets = c.Customer, origin, c.Leaving, c.Secrets
		l.config.Projections = append(l.config.Projections, p)
		l.owner = append(l.owner, doc)
		var compiled *projections.Projection
		if f.compiled != nil {
			compiled = f.compiled[i]
		}
		l.config.compiled = append(l.config.compiled, compiled)
	}
	for _, check := range c.Checks {
		check.Customer, check.origin = c.Customer, origin
		l.config.Checks, l.checked = append(l.config.Checks, check), append(l.checked, doc)
		checkName(doc, member("checks", check.Name), check.Name)
		if p := slices.IndexFunc(c.Projections, func(p Projection) bool { return p.Name == check.Name }); p >= 0 &&
			slices.ContainsFunc(c.Projections[p].Deliver, func(d Delivery) bool { return d.Name == checkSink }) {
			doc.faultKey(member("checks", check.Name), "is the service "+check.Current()+" too", "another name, for it or for the sink")
		}
	}
}

// applyDerivedDefaults fills in the defaults that depend on other values.
func (l *loader) applyDerivedDefaults() {
	c := &l.config
	c.API.Given = l.main.has("api")
	if c.Store.Postgres == nil {
		c.Store.File = filepath.Join(c.DataDir, "state.db")
	}
	if c.Gate.Valkey == nil && c.Gate.Memory == nil {
		c.Gate.Memory = &MemoryGate{}
		d := &decoder{doc: l.main}
		d.applyDefault(reflect.ValueOf(c.Gate.Memory).Elem(), "")
	}
	if !l.main.has("limits.memory") {
		c.Limits.Memory = cmp.Or(l.memory, 256<<20)
	}
	l.divideSources()
	l.inheritHistory()
	c.Kafka.Inbox.Topic = cmp.Or(c.Kafka.Inbox.Topic, c.Kafka.Prefix+".inbox")
	for i := range c.Sources {
		s := &c.Sources[i]
		if d, ok := s.Input.(SourceDefaults); ok {
			d.ApplyDefaults(s, c)
		}
	}
	for _, d := range Projections(c.Projections).deliveries() {
		if sink, ok := d.Sink.(SinkDefaults); ok {
			sink.ApplyDefaults()
		}
	}
}

// ApplyDefaults names the path of each column without one after the column.
func (c Columns) ApplyDefaults() {
	for i := range c {
		c[i].Path = cmp.Or(c[i].Path, c[i].Name)
	}
}
