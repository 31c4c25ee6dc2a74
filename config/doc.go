// Package config reads the configuration: one main file (weir.yaml) and one
// file per customer.
//
// # Model
//
// [Load] parses every file into a tree that knows its positions, decodes the
// tree strictly into [Config], fills in defaults, and checks the whole: names,
// paths, filters, targets, and how the parts fit together. It never stops at
// the first problem. Its error is [*Faults], which lists every [Fault] with
// file, line, column, the path of the key, the value, and what would be right.
//
// # Values
//
// Text may hold references: ${NAME}, ${NAME:-default} and ${file:/path}; $$ is a dollar sign. A
// fault shows the reference, never its value. A [Secret] prints, logs and marshals as "***".
// Durations and sizes carry their unit. Paths are relative to their file.
//
// # Unset is not zero
//
// A key that is absent gets its default after decoding. A key that is set to zero keeps zero or
// is a fault. The defaults are in the struct tags, from which the JSON schemas under schema/ are
// generated as well.
//
// # Fingerprint
//
// [Config.Fingerprint] identifies everything that decisions depend on. Two
// configurations with the same fingerprint decide alike, wherever they send to.
// [Config.Identity] adds what else a customer gets by them, which is what processes
// have to agree about.
package config
