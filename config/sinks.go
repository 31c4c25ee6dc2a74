package config

// Columns in the order of the file.
type Columns []Column

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Columns) JSONSchemaAlias() any { return map[string]Column{} }

// Column is a typed column of a table. In a file it is a type, or a mapping.
type Column struct {
	Name string   `yaml:"-" key:"true"`
	Pos  Position `yaml:"-"`

	// Type is the database's name of the type.
	Type string `yaml:"type" required:"true"`
	// Path is the place of the value in the projected document. Defaults to the
	// column's name.
	Path string `yaml:"path"`
	// Unit is what numbers in a column of dates or times count, since 1970 or midnight.
	Unit string `yaml:"unit" enum:"days|seconds|millis|micros|nanos"`
}
