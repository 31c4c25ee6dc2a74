package imports

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Format of a file.
type Format string

// The formats.
const (
	JSONL Format = "jsonl"
	CSV   Format = "csv"
)

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(name); f {
	case JSONL, CSV:
		return f, nil
	}
	return "", fmt.Errorf("the format must be %s or %s", JSONL, CSV)
}

// FormatOf guesses the format from a file's name, empty when it cannot.
func FormatOf(name string) Format {
	switch name = strings.ToLower(name); {
	case strings.HasSuffix(name, ".csv"), strings.HasSuffix(name, ".tsv"):
		return CSV
	case strings.HasSuffix(name, ".jsonl"), strings.HasSuffix(name, ".ndjson"):
		return JSONL
	}
	return ""
}

// Type is the JSON type of a column's cells. An empty cell of another type
// than String is null.
type Type string

// The types of columns.
const (
	String Type = "string" // the default
	Number Type = "number" // a JSON number, its literal as it is
	Bool   Type = "bool"   // true or false, in any case
	JSON   Type = "json"   // a JSON value
)

// Options say how a CSV file is read. JSONL has no options. The zero Options are a file with
// commas whose cells are strings.
type Options struct {
	// Delimiter between cells: one printable ASCII character or a tab, but no
	// quote; empty is a comma.
	Delimiter string `json:"delimiter,omitempty"`
	// Types by the name of the column.
	Types map[string]Type `json:"types,omitempty"`
	// Null is the text of unquoted cells that are null: empty in files of PostgreSQL's COPY, \N
	// in those of MySQL. Nil means that only empty cells of other types than String are null.
	Null *string `json:"null,omitempty"`
	// Escape is one ASCII character that escapes the next one, as the backslash of MySQL's
	// OUTFILE does. Empty means no escapes.
	Escape string `json:"escape,omitempty"`
}

// maxOptions bounds the JSON of Options, in bytes.
const maxOptions = 64 << 10

// Check returns the faults of the options for a format.
func (o Options) Check(f Format) error {
	if f == JSONL && (o.Delimiter != "" || len(o.Types) > 0 || o.Null != nil || o.Escape != "") {
		return errors.New("delimiter, types, null and escape are options of csv")
	}
	if e := o.Escape; e != "" && (len(e) != 1 || e[0] <= ' ' || e[0] > '~' || e[0] == '"' || e == o.Delimiter || e[0] == o.delimiter()) {
		return errors.New("escape must be one ASCII character, but no quote and not the delimiter")
	}
	if d := o.Delimiter; d != "" && (len(d) != 1 || d[0] != '\t' && (d[0] < ' ' || d[0] > '~') || d[0] == '"') {
		return errors.New("the delimiter must be one ASCII character and no quote")
	}
	for _, t := range o.Types {
		switch t {
		case String, Number, Bool, JSON:
		default:
			return fmt.Errorf("the type of a column must be %s, %s, %s or %s", String, Number, Bool, JSON)
		}
	}
	if len(o.Encode()) > maxOptions {
		return errors.New("the types of columns are too many")
	}
	return nil
}

// Encode returns the options as JSON, always the same text for the same options.
func (o Options) Encode() []byte {
	if o.Delimiter == "," {
		o.Delimiter = ""
	}
	types := map[string]Type{}
	for name, t := range o.Types {
		if t != String {
			types[name] = t
		}
	}
	o.Types = types
	text, err := json.Marshal(o)
	if err != nil {
		return nil // strings always have a JSON form
	}
	return text
}

// ParseTypes reads a list of name:type.
func ParseTypes(list []string) (map[string]Type, error) {
	types := map[string]Type{}
	for _, item := range list {
		at := strings.LastIndexByte(item, ':')
		if at <= 0 {
			return nil, errors.New("the type of a column is given as column:type")
		}
		if _, twice := types[item[:at]]; twice {
			return nil, errors.New("a column has two types")
		}
		types[item[:at]] = Type(item[at+1:])
	}
	return types, nil
}

func (o Options) delimiter() byte { return cmp.Or(o.Delimiter, ",")[0] }

// escape returns the escape character, 0 without one.
func (o Options) escape() byte { return cmp.Or(o.Escape, "\x00")[0] }
