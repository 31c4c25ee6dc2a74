package config

import (
	"bytes"
	"crypto/sha256"
	"slices"
)

// Print identifies a part of the settings on which decisions depend.
type Print [8]byte

// Prints are the parts of a Fingerprint: what decisions about all services depend on, and
// of each service its name with the shape of its projection. Two configurations with one
// Base decide alike about each service that has the same print in both.
type Prints struct {
	Base     Print
	Services map[string]Print // by name
}

// Prints returns the prints of a configuration. It may be called on a Config of Load only.
func (c *Config) Prints() Prints { return c.prints }

// append appends the prints to an identity: the base, then those of services, in order.
func (p Prints) append(identity []byte) []byte {
	all := make([]Print, 0, len(p.Services))
	for _, one := range p.Services {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b Print) int { return bytes.Compare(a[:], b[:]) })
	identity = append(identity, p.Base[:]...)
	for _, one := range all {
		identity = append(identity, one[:]...)
	}
	return identity
}

// fixedIdentity is the length of an identity without its prints: Fingerprint, targets.
const fixedIdentity = 2 * sha256.Size

// PrintsOf returns, of an identity of the store, the Fingerprint, the base and the prints of its
// services. ok is false for an identity without prints.
func PrintsOf(identity []byte) (fingerprint []byte, base Print, services map[Print]bool, ok bool) {
	if len(identity) < fixedIdentity+len(base) || (len(identity)-fixedIdentity)%len(base) != 0 {
		return nil, base, nil, false
	}
	rest := identity[fixedIdentity:]
	base, rest = Print(rest[:len(base)]), rest[len(base):]
	services = make(map[Print]bool, len(rest)/len(base))
	for ; len(rest) > 0; rest = rest[len(base):] {
		services[Print(rest[:len(base)])] = true
	}
	return identity[:sha256.Size], base, services, true
}
