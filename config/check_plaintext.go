package config

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

const onOwn = "TLS, or insecure: true beside it where no third party can read the traffic"

// checkPlaintext refuses connections that others could read or answer: without
// TLS, or without verification of the server's certificate, beyond this machine. A kind
// may check more. To allow it a connection says insecure: true.
func (l *loader) checkPlaintext() {
	c := &l.config
	if !c.Admin.Off() && !c.Admin.Insecure && c.Admin.TLS == nil && Beyond(hostOf(c.Admin.Listen)) {
		l.on("admin").Plain("listen", "serves without TLS beyond this machine", "admin.tls, or admin.insecure: true behind a proxy of your own")
	}
	if c.NeedsAPI() && !c.API.Insecure && c.API.TLS == nil && Beyond(hostOf(c.API.Listen)) {
		l.on("api").Plain("listen", "serves without TLS beyond this machine", "api.tls, or api.insecure: true behind a proxy of your own")
	}
	if s := c.Store.Postgres; s != nil && !s.Insecure {
		l.on("store.postgres").PlainPostgres("url", s.URL)
	}
	if v := c.Gate.Valkey; v != nil && !v.Insecure && v.TLS == nil && slices.ContainsFunc(v.Address, AddressBeyond) {
		l.on("gate.valkey").Plain("address", "is reached without TLS beyond this machine", onOwn)
	}
	l.on("kafka").PlainCluster(&c.Kafka.Cluster)
}

// PlainCluster refuses brokers on other machines that are reached without TLS.
func (c *Checker) PlainCluster(cluster *Cluster) {
	if !cluster.Insecure && cluster.TLS == nil && slices.ContainsFunc(cluster.Brokers, AddressBeyond) {
		c.Plain("brokers", "are reached without TLS beyond this machine", onOwn)
	}
}

// Plain reports that others could read a connection, or answer it. A value with an
// unresolved reference is not reported.
func (c *Checker) Plain(key, problem, want string) {
	path := c.path(key)
	for at, v := range c.doc.values {
		if v.unresolved && (at == path || parent(at) == path) {
			return
		}
	}
	c.Fault(key, problem, want)
}

// PlainPostgres refuses a PostgreSQL server on another machine that is not verified. It reads a
// connection string as libpq does, with the environment's values for settings that it lacks.
func (c *Checker) PlainPostgres(key string, secret Secret) {
	if !c.Known(key) || secret.IsZero() {
		return
	}
	hosts, set := connection(secret.Reveal())
	setting := func(key, variable string) string {
		if set[key] == "" {
			set[key], _ = c.l.env(variable)
		}
		return set[key]
	}
	if len(hosts) == 0 {
		hosts = strings.Split(setting("host", "PGHOST"), ",")
	}
	mode := setting("sslmode", "PGSSLMODE")
	verified := mode == "verify-full" || mode == "verify-ca" || mode == "require" && setting("sslrootcert", "PGSSLROOTCERT") != ""
	if !verified && slices.ContainsFunc(hosts, Beyond) {
		c.Plain(key, "does not verify the server beyond this machine", "sslmode=verify-full in it, or insecure: true beside it where no third party can read the traffic")
	}
}

// connection parses a connection string into hosts and settings.
func connection(text string) (hosts []string, set map[string]string) {
	set = map[string]string{}
	scheme, rest, isURL := strings.Cut(text, "://")
	if !isURL || scheme == "" {
		for _, m := range keyValue.FindAllStringSubmatch(text, -1) {
			set[strings.ToLower(m[1])] = strings.Trim(m[2], "'")
		}
	} else {
		rest, query, _ := strings.Cut(rest, "?")
		authority, _, _ := strings.Cut(rest, "/")
		for host := range strings.SplitSeq(authority[strings.LastIndexByte(authority, '@')+1:], ",") {
			if host != "" {
				hosts = append(hosts, hostOf(host))
			}
		}
		values, _ := url.ParseQuery(query)
		for key := range values {
			set[strings.ToLower(key)] = values.Get(key)
		}
	}
	if set["host"] != "" {
		hosts = strings.Split(set["host"], ",")
	}
	return hosts, set
}

// AddressBeyond is Beyond of host:port.
func AddressBeyond(address string) bool { return Beyond(hostOf(address)) }

// hostOf returns an address without its port.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return orAll(host)
	}
	return strings.Trim(address, "[]")
}

// orAll returns, for the host of an address without one, the address of all
// interfaces.
func orAll(host string) string {
	if host == "" {
		return "0.0.0.0"
	}
	return host
}

// Beyond reports whether a host is another machine, or every address of this one; An empty host
// and the folder of a socket are neither.
func Beyond(host string) bool {
	if host == "" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || strings.EqualFold(host, "localhost") {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || !ip.Unmap().IsLoopback()
}
