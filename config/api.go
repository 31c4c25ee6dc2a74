package config

import "cmp"

// API is the listener for producers and callers: events of the http sources,
// and checks.
type API struct {
	// Given is whether the file has the section.
	Given bool `yaml:"-"`

	// Listen is the address. Beyond loopback tokens are required.
	Listen string `yaml:"listen" default:"127.0.0.1:9601"`
	// TLS, if given, serves HTTPS; cert and key are required then.
	TLS *APITLS `yaml:"tls"`
	// Insecure allows a listener without TLS that other machines can reach, as
	// behind a proxy.
	Insecure bool `yaml:"insecure" default:"false"`
	// Tokens is a file with the hashes of the tenants' tokens. It is read again
	// when it changes. Without it requests on a loopback address need no token.
	Tokens string `yaml:"tokens" path:"true"`
	// Idempotency says how long idempotency keys are kept.
	Idempotency Idempotency `yaml:"idempotency"`
	// MaxRows is the most rows of a batch.
	MaxRows int `yaml:"max_rows" default:"1000" range:"1..100000"`
	// MaxBody is the largest request.
	MaxBody Size `yaml:"max_body" default:"16MiB" range:"1KiB..1GiB"`
	// Rate is how many requests per second one token may send on the average. It may send the
	// requests of two seconds at once.
	Rate int `yaml:"rate" default:"2000" range:"1..1000000"`
	// AccessLog writes a line for every request into the log. Off by default:
	// metrics count requests, and where there are thousands per second most of the
	// log would be these lines.
	AccessLog bool `yaml:"access_log" default:"false"`
	// Timeout is how long a request waits until its effect is durable.
	Timeout Duration `yaml:"timeout" default:"30s" range:"100ms..10m"`
}

// APITLS is a listener's certificate and whose clients it takes.
type APITLS struct {
	ServerTLS `yaml:",inline"`
	// ClientCA is a PEM file of certificates; clients must then show a
	// certificate that one of them signed, beside their token.
	ClientCA string `yaml:"client_ca" path:"true"`
}

// Idempotency says how long the ledger keeps idempotency keys.
type Idempotency struct {
	// Retention is how long a key is recognised. After it the key is new.
	Retention Duration `yaml:"retention" default:"30d" range:"1m..365d"`
	// DropAt is the time of day, in UTC, at which months that are over are dropped.
	DropAt TimeOfDay `yaml:"drop_at" default:"03:00"`
}

// Checks in the order of the file.
type Checks []Check

// JSONSchemaAlias says that a file has them as a mapping by name.
func (Checks) JSONSchemaAlias() any { return map[string]Check{} }

// Check is a service that the customer's own system projects and delivers: it
// asks, over the API, whether a document differs from the last one.
type Check struct {
	Customer string   `yaml:"-"`
	Name     string   `yaml:"-" key:"true"`
	Pos      Position `yaml:"-"`
	origin   string   `yaml:"-"` // the customer's first name

	// Was is the first name of the service, customer/name@check, after a rename.
	Was string `yaml:"was"`
	// Numbers says when two numbers are equal.
	Numbers string `yaml:"numbers" default:"literal" enum:"literal|decimal"`
}

// Service returns the check's service, see Service.Name.
func (c *Check) Service() string {
	return cmp.Or(c.Was, serviceName(cmp.Or(c.origin, c.Customer), c.Name, checkSink))
}

// Current returns the name of the check's service in the file: customer/name@check.
func (c *Check) Current() string { return serviceName(c.Customer, c.Name, checkSink) }

// checkSink takes the place of the sink in the name of a check service, which has no sink.
const checkSink = "check"

// APIMemory is the part of limits.memory for requests: their bodies, the parsed values, and the
// buffers of their connections. It is half where the API's listener opens.
func (c *Config) APIMemory() int64 {
	if !c.NeedsAPI() {
		return 0
	}
	return int64(c.Limits.Memory) / 2
}

// FlowMemory is the rest of limits.memory: for events, frames, cached entities and
// changes.
func (c *Config) FlowMemory() int64 { return int64(c.Limits.Memory) - c.APIMemory() }

// cacheShare is the part of the flow's memory for cached entities.
const cacheShare = 4

// CacheMemory is the part of the flow's memory for the entities that the owners of partitions
// cache.
func (c *Config) CacheMemory() int64 { return c.FlowMemory() / cacheShare }

// NeedsAPI reports whether the API's listener opens: there is an http source or
// a check, or the file has the section, for imports.
func (c *Config) NeedsAPI() bool {
	for i := range c.Sources {
		if isPosted(&c.Sources[i]) {
			return true
		}
	}
	return len(c.Checks) > 0 || c.API.Given
}

func isPosted(s *Source) bool {
	_, posted := s.Endpoint()
	return posted
}
