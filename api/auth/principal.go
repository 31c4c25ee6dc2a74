package auth

import (
	"slices"
	"strings"
)

// Permission is something that a principal may do.
type Permission string

// Verbs.
const (
	// Any is granted to every authenticated caller.
	Any Permission = ""
	// Ingest: send events to a source; the resource is the source's name.
	Ingest Permission = "ingest"
	// Check: ask for and close decisions; the resource is the service's name.
	Check Permission = "check"
)

// DefaultTenant is the tenant of callers of this machine that show no token. A source's
// own token has a tenant of its own, see config.SourceTenants.
const DefaultTenant = "default"

// AllSources in Principal.Sources means every source.
const AllSources = "*"

// Principal is the caller of a request. It is a value; its lists are read-only.
type Principal struct {
	// ID of the token, "source:NAME" for a source's own token, "" for
	// a caller on a loopback address without a token. Good for logs.
	ID string
	// Tenant whose rows the request reads and writes.
	Tenant string
	// Permissions that it may use.
	Permissions []Permission
	// Sources that it may use them on; AllSources for every one.
	Sources []string
	// Except are sources that AllSources does not cover.
	Except []string
	// AnyCustomer says that it may check the services of every customer, not
	// only of that with the tenant's name.
	AnyCustomer bool
}

// Anonymous reports whether the caller showed no token.
func (p Principal) Anonymous() bool { return p.ID == "" }

// May reports whether the principal may apply the verb to a resource:
// the name of a source for Ingest, of a service for Check. An empty
// resource asks whether there could be any.
func (p Principal) May(verb Permission, resource string) bool {
	if verb == Any {
		return true
	}
	if !slices.Contains(p.Permissions, verb) {
		return false
	}
	switch {
	case resource == "":
		return true
	case verb == Check:
		customer, _, ok := strings.Cut(resource, "/")
		return ok && (p.AnyCustomer || customer == p.Tenant)
	}
	return slices.Contains(p.Sources, resource) ||
		slices.Contains(p.Sources, AllSources) && !slices.Contains(p.Except, resource)
}
