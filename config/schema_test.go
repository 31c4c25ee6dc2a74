package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

const reference = `\$\{`

// schemaOf generates the schema of a file from its Go type: the names, defaults
// and limits from the struct tags, the descriptions from the comments.
func schemaOf(t *testing.T, title string, file any) []byte {
	t.Helper()
	text := func(pattern, description string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: pattern, Description: description}
	}
	r := &jsonschema.Reflector{
		FieldNameTag: "yaml", RequiredFromJSONSchemaTags: true, Anonymous: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			switch t {
			case reflect.TypeFor[config.Secret]():
				return text("", "")
			case reflect.TypeFor[config.Locator]():
				return text("", "")
			case reflect.TypeFor[config.Duration]():
				return text(`^(\d+d)?([0-9.]+(ns|us|ms|s|m|h))*$|`+reference, "")
			case reflect.TypeFor[config.Size]():
				return text(`^\d+ ?([KMG]i?B|kB|B)$|`+reference, "")
			case reflect.TypeFor[config.TimeOfDay]():
				return text(`^([01]?\d|2[0-3]):[0-5]\d$|`+reference, "")
			case reflect.TypeFor[config.Share]():
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
					{Type: "number", Minimum: "0", Maximum: "1"}, {Type: "string", Pattern: reference}}}
			case reflect.TypeFor[config.Percent]():
				return text(`^([0-9.]+%|off)$|`+reference, "")
			case reflect.TypeFor[config.Rate]():
				return text(`^([0-9.]+/[smh]|off)$|`+reference, "")
			case reflect.TypeFor[config.JSON]():
				return &jsonschema.Schema{}
			}
			return nil
		},
	}
	r.Namer = schemaName
	dirs := map[string]bool{".": true, "../sinks/internal/sqlsink": true}
	for _, k := range kinds() {
		pkg := reflect.TypeOf(k.value).Elem().PkgPath()
		dirs[filepath.Join("..", strings.TrimPrefix(pkg, "github.com/seed-86dfc502/weir/"))] = true
	}
	for dir := range dirs {
		require.NoError(t, r.AddGoComments("github.com/seed-86dfc502/weir/config", dir))
	}
	s := r.Reflect(file)
	s.Title = title
	types := map[string]reflect.Type{}
	collect(reflect.TypeOf(file).Elem(), types)
	for _, k := range kinds() {
		holder := s.Definitions[k.holder]
		if holder == nil {
			continue
		}
		collect(reflect.TypeOf(k.value), types)
		own := r.Reflect(k.value)
		for name, definition := range own.Definitions {
			s.Definitions[name] = definition
		}
		definition := s.Definitions[schemaName(reflect.TypeOf(k.value).Elem())]
		does := strings.TrimPrefix(definition.Description, "Config ")
		definition.Description = strings.ToUpper(does[:1]) + does[1:]
		property := &jsonschema.Schema{Ref: own.Ref, Description: definition.Description}
		holder.Properties.Delete(k.field)
		holder.Properties.Set(k.name, property)
		holder.OneOf = append(holder.OneOf, &jsonschema.Schema{Required: []string{k.name}})
	}
	for name, definition := range s.Definitions {
		if typ := types[name]; typ != nil {
			refine(definition, typ)
		}
	}
	for name, plain := range map[string]string{"Field": "A path in the merged document.", "Column": "The type of the column.", "Guard": "The share of retract, or off."} {
		if object := s.Definitions[name]; object != nil {
			s.Definitions[name] = &jsonschema.Schema{Description: object.Description,
				OneOf: []*jsonschema.Schema{{Type: "string", Description: plain}, object}}
		}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	for escaped, plain := range map[string]string{`\u003c`: "<", `\u003e`: ">"} {
		data = bytes.ReplaceAll(data, []byte(escaped), []byte(plain))
	}
	return append(data, '\n')
}

// kindOf is a kind of source or sink, and the definition that it is a member of.
type kindOf struct {
	name, holder, field string
	value               any
}

func kinds() (all []kindOf) {
	for _, k := range assemble.Registry().Sources {
		all = append(all, kindOf{k.Kind(), "Source", "Input", k})
	}
	for _, k := range assemble.Registry().Sinks {
		all = append(all, kindOf{k.Kind(), "Delivery", "Sink", k})
	}
	return all
}

// schemaName names the configuration of a kind.
func schemaName(t reflect.Type) string {
	for _, k := range kinds() {
		if reflect.TypeOf(k.value).Elem() == t {
			return map[string]string{"Source": "Source_", "Delivery": "Sink_"}[k.holder] + k.name
		}
	}
	return t.Name()
}

// collect finds the struct types below t.
func collect(t reflect.Type, into map[string]reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		collect(t.Elem(), into)
	case reflect.Struct:
		if into[schemaName(t)] != nil {
			return
		}
		into[schemaName(t)] = t
		for i := range t.NumField() {
			collect(t.Field(i).Type, into)
		}
	}
}

// refine adds the struct tags to the schema of a struct.
func refine(s *jsonschema.Schema, t reflect.Type) {
	var group []string
	rule := ""
	for _, f := range reflect.VisibleFields(t) {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		property, _ := s.Properties.Get(name)
		refineProperty(property, f)
		if option == "single" {
			single := *property.Items
			s.Properties.Set(name, &jsonschema.Schema{Description: property.Description,
				OneOf: []*jsonschema.Schema{&single, {Type: "array", Items: property.Items, MinItems: new(uint64(1))}}})
		}
		if f.Tag.Get("required") == "true" {
			s.Required = append(s.Required, name)
		}
		if of := f.Tag.Get("oneof"); of != "" {
			group = append(group, name)
			if len(f.Index) == 1 { // not inline
				rule = of
			}
		}
	}
	switch {
	case rule == "required":
		for _, name := range group {
			s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{name}})
		}
	case len(group) > 1:
		s.Not = &jsonschema.Schema{Required: group}
	}
}

func refineProperty(p *jsonschema.Schema, f reflect.StructField) {
	kind := f.Type.Kind()
	if text, ok := f.Tag.Lookup("default"); ok {
		switch n, err := strconv.Atoi(text); {
		case kind == reflect.Slice:
			p.Default = strings.Split(text, ",")
		case kind == reflect.Bool:
			p.Default = text == "true"
		case kind == reflect.Int && err == nil:
			p.Default = n
		case f.Type == reflect.TypeFor[config.Share]():
			p.Default = json.Number(text)
		default:
			p.Default = text
		}
	}
	for word := range strings.SplitSeq(f.Tag.Get("enum"), "|") {
		if word != "" {
			p.Enum = append(p.Enum, word)
		}
	}
	least, most, ranged := strings.Cut(f.Tag.Get("range"), "..")
	switch {
	case kind == reflect.Int:
		number := &jsonschema.Schema{Type: "integer"}
		if ranged {
			number.Minimum, number.Maximum = json.Number(least), json.Number(most)
		}
		p.Type, p.AnyOf = "", []*jsonschema.Schema{number, {Type: "string", Pattern: reference}}
	case kind == reflect.Bool:
		p.Type, p.AnyOf = "", []*jsonschema.Schema{{Type: "boolean"}, {Type: "string", Pattern: reference}}
	case ranged:
		p.Description += " From " + least + " to " + most + "."
	}
	if len(p.Enum) > 0 {
		p.AnyOf = []*jsonschema.Schema{{Enum: p.Enum}, {Pattern: reference}}
		p.Enum = nil
	}
	switch f.Type {
	case reflect.TypeFor[config.Sources](), reflect.TypeFor[config.Projections](), reflect.TypeFor[config.Deliveries](), reflect.TypeFor[config.Checks]():
		p.PropertyNames = &jsonschema.Schema{Pattern: `^[a-z0-9][a-z0-9_-]{0,62}$`}
		p.MinProperties = new(uint64(1))
	}
}

// The schemas are written for editors; they must match the types.
// Run the test with -update after a change of the types.
func TestSchemasAreUpToDate(t *testing.T) {
	for name, file := range map[string]struct {
		title string
		value any
	}{
		"weir.schema.json":     {"Weir: main file", &config.Config{}},
		"customer.schema.json": {"Weir: file of a customer", &config.CustomerFile{}},
	} {
		got := schemaOf(t, file.title, file.value)
		path := filepath.Join("schema", name)
		if *update {
			require.NoError(t, os.MkdirAll("schema", 0o755))
			require.NoError(t, os.WriteFile(path, got, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is out of date: run the test with -update", path)
	}
}

// A default must be readable and inside the range of its own key: decoding
// relies on it.
func TestTags(t *testing.T) {
	types := map[string]reflect.Type{}
	collect(reflect.TypeFor[config.Config](), types)
	collect(reflect.TypeFor[config.CustomerFile](), types)
	for _, k := range kinds() {
		collect(reflect.TypeOf(k.value), types)
	}
	read := func(typ reflect.Type, text string) (int64, error) {
		switch v := reflect.New(typ).Interface().(type) {
		case interface{ UnmarshalText([]byte) error }:
			err := v.UnmarshalText([]byte(text))
			return reflect.ValueOf(v).Elem().Int(), err
		default:
			return strconv.ParseInt(text, 10, 64)
		}
	}
	checked := 0
	for name, typ := range types {
		for i := range typ.NumField() {
			f := typ.Field(i)
			at := name + "." + f.Name
			value, hasDefault := f.Tag.Lookup("default")
			if words := f.Tag.Get("enum"); words != "" && hasDefault {
				require.Contains(t, strings.Split(words, "|"), value, at)
				checked++
			}
			bounds := f.Tag.Get("range")
			if bounds == "" {
				continue
			}
			least, most, ok := strings.Cut(bounds, "..")
			require.True(t, ok, at)
			low, err := read(f.Type, least)
			require.NoError(t, err, at)
			high, err := read(f.Type, most)
			require.NoError(t, err, at)
			require.Less(t, low, high, at)
			if hasDefault {
				d, err := read(f.Type, value)
				require.NoError(t, err, at)
				require.True(t, low <= d && d <= high, at)
			}
			checked++
		}
	}
	require.Greater(t, checked, 30)
}
