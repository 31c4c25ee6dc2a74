// Package imports loads files with the real binary, embedded and on servers,
// and kills it at every point of an import: each row has one effect.
package imports
