// Package schema holds the JSON Schemas of the configuration's files, for editors
// and for programs that write such files.
package schema

import _ "embed" // the schemas

// Main is the schema of the main file, Customer that of a customer's.
var (
	//go:embed weir.schema.json
	Main []byte
	//go:embed customer.schema.json
	Customer []byte
)
