package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	wantAddress  = `host:port, like "127.0.0.1:9092"`
	wantDatabase = "postgres://user:password@host:port/database"
	wantPort     = "a port of 1 to 65535"
	leastToken   = 16
)

func (l *loader) checkStore() {
	if s := l.config.Store.Postgres; s != nil {
		l.on("store.postgres").Database("url", s.URL)
	}
}

// Database checks a PostgreSQL connection string.
func (c *Checker) Database(key string, secret Secret) {
	text := secret.Reveal()
	switch {
	case strings.Contains(text, "://"):
		c.URL(key, secret, wantDatabase, "postgres", "postgresql")
	case !c.Known(key) || secret.IsZero():
	case !strings.Contains(text, "="):
		c.Fault(key, "is not a connection string", wantDatabase)
	case badPort(text):
		c.Fault(key, "has a port that is none", wantPort)
	}
}

// URL checks a URL and its scheme.
func (c *Checker) URL(key string, secret Secret, want string, schemes ...string) {
	if !c.Known(key) || secret.IsZero() {
		return
	}
	u, err := url.Parse(secret.Reveal())
	switch {
	case err != nil:
		c.Fault(key, "is not a URL", want)
	case !contains(schemes, u.Scheme):
		c.Fault(key, "is a URL of another kind", want)
	case u.Host == "":
		c.Fault(key, "is a URL without a host", want)
	case badPort(secret.Reveal()):
		c.Fault(key, "has a port that is none", wantPort)
	}
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if strings.EqualFold(v, s) {
			return true
		}
	}
	return false
}

func (l *loader) checkGate() {
	v := l.config.Gate.Valkey
	if v == nil {
		return
	}
	c := l.on("gate.valkey")
	for i, address := range v.Address {
		key := element("address", i)
		if c.IsValue("address") {
			key = "address"
		}
		c.address(key, address)
	}
	if len(v.Address) > 1 && v.DB != 0 {
		c.Fault("db", "is not 0, the only database of a cluster", "0, or a single address")
	}
	c.TLS("tls", v.TLS)
}

// address checks host:port.
func (c *Checker) address(key, address string) {
	if !c.Known(key) {
		return
	}
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || bad != nil || n == 0 {
		c.Fault(key, "is not an address", wantAddress)
	}
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

func (l *loader) checkKafka() {
	k, c := &l.config.Kafka, l.on("kafka")
	c.cluster(&k.Cluster)
	if c.Known("prefix") && !prefixPattern.MatchString(k.Prefix) {
		c.Fault("prefix", "cannot begin the name of a topic", "1 to 32 of letters, digits, ., _ and -")
	}
	c.Topic("inbox.topic", k.Inbox.Topic)
	if c.Known("replication") && k.Replication == 0 {
		c.Fault("replication", "is no replica at all", "-1 for the servers' default, or 1 and more")
	}
	if len(k.Brokers) > 0 || c.Has("brokers") {
		return
	}
	if k.Replication > 1 {
		c.FaultKey("", "asks for replicas, and has no brokers that could keep any", "brokers, or a replication of -1 or 1")
	}
	if l.config.Store.Postgres != nil {
		l.main.faultKey("store.postgres", "is without a place for inbox and changes log: without brokers they are tables of the SQLite file", "kafka.brokers, or no store.postgres")
	}
}

// Cluster checks how the cluster of a source or a sink is reached. Its keys are keys of the kind.
func (c *Checker) Cluster(cluster *Cluster) {
	c.cluster(cluster)
	if len(cluster.Brokers) == 0 && len(c.l.config.Kafka.Brokers) == 0 && !c.Has("brokers") && !c.l.main.has("kafka.brokers") {
		c.FaultKey("", "names no brokers, and the main kafka key has none either", "brokers in one of the two")
	}
}

// cluster checks how a cluster is reached.
func (c *Checker) cluster(cluster *Cluster) {
	for i, broker := range cluster.Brokers {
		c.address(element("brokers", i), broker)
	}
	if len(cluster.Brokers) == 0 {
		if c.Has("brokers") {
			c.FaultKey("brokers", "is empty", "at least one host:port")
		}
		for _, key := range []string{"tls", "sasl", "insecure"} {
			if c.Has(key) {
				c.FaultKey(key, "has no effect without brokers", "brokers beside it")
			}
		}
	}
	c.TLS("tls", cluster.TLS)
}

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

// Topic checks the name of a topic.
func (c *Checker) Topic(key, topic string) {
	if c.Known(key) && topic != "" && (!topicPattern.MatchString(topic) || topic == "." || topic == "..") {
		c.Fault(key, "is not the name of a topic", "1 to 249 of letters, digits, ., _ and -")
	}
}

// TLS checks the files of a client.
func (c *Checker) TLS(key string, t *TLS) {
	if t == nil {
		return
	}
	switch {
	case t.Cert != "" && t.Key == "":
		c.FaultKey(key, "has cert without key", "both or neither")
	case t.Key != "" && t.Cert == "":
		c.FaultKey(key, "has key without cert", "both or neither")
	case t.Cert != "":
		c.keyPair(key, t.Cert, t.Key)
	}
	c.certificates(member(key, "ca"), t.CA)
}

// certificates checks a file of certificates, if one is named.
func (c *Checker) certificates(key, file string) {
	if file == "" || !c.Known(key) || c.l.allowUnset {
		return
	}
	pem, err := os.ReadFile(file)
	switch {
	case err != nil:
		c.Fault(key, "cannot be read", "a PEM file of certificates")
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		c.Fault(key, "holds no certificate", "a PEM file of certificates")
	}
}

func (c *Checker) keyPair(at, cert, key string) {
	if c.l.allowUnset || !c.Known(member(at, "cert")) || !c.Known(member(at, "key")) {
		return
	}
	good := true
	for _, file := range []struct{ key, path string }{{"cert", cert}, {"key", key}} {
		if _, err := os.Stat(file.path); err != nil {
			c.Fault(member(at, file.key), "cannot be read", "a PEM file")
			good = false
		}
	}
	if !good {
		return
	}
	// The error is left out: it may repeat the file's content.
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		c.Fault(member(at, "cert"), "and key are not a pair", "a certificate and its private key, in PEM")
	}
}

func (l *loader) checkListeners() {
	c, open := &l.config, claims{}
	listen := func(at *Checker, address string, t *ServerTLS) (beyond bool) {
		if t != nil && t.Cert != "" && t.Key != "" {
			at.keyPair("tls", t.Cert, t.Key)
		}
		path := at.path("listen")
		if l.main.values[path].unresolved {
			return false
		}
		host, port, err := net.SplitHostPort(address)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
			at.Fault("listen", "is not an address", `host:port, like "127.0.0.1:9600"`)
			return false
		}
		if first, taken := open.take(address, path, l.main.at(path)); taken && port != "0" {
			at.Fault("listen", "is the address of "+first.who+" too", "an address of its own")
		}
		ip := net.ParseIP(host)
		return host != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	admin, api := l.on("admin"), l.on("api")
	if !c.Admin.Off() && listen(admin, c.Admin.Listen, c.Admin.TLS) && c.Admin.Token.IsZero() {
		admin.Fault("listen", "is reachable from other machines without a token", "admin.token, or a loopback address")
	}
	admin.Token("token", c.Admin.Token)
	admin.Token("metrics_token", c.Admin.MetricsToken)
	if !c.Admin.MetricsToken.IsZero() && c.Admin.MetricsToken.Reveal() == c.Admin.Token.Reveal() {
		admin.Fault("metrics_token", "is admin.token", "a token of its own")
	}
	if !c.NeedsAPI() {
		return
	}
	if k := c.API.Idempotency; k.Retention.D() < c.API.Timeout.D() {
		// The first attempt would still be under way when its key is new again.
		api.Fault("idempotency.retention", "is shorter than a request may take", "at least api.timeout")
	}
	var certificate *ServerTLS
	if t := c.API.TLS; t != nil {
		certificate = &t.ServerTLS
		api.certificates("tls.client_ca", t.ClientCA)
	}
	beyond := listen(api, c.API.Listen, certificate)
	if c.API.Tokens != "" {
		return
	}
	posted := slices.ContainsFunc(c.Sources, func(s Source) bool { return isPosted(&s) })
	if beyond && (len(c.Checks) > 0 || !posted) {
		api.Fault("listen", "is reachable from other machines without tokens", "api.tokens, or a loopback address")
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		if e, posted := s.Endpoint(); posted && beyond && e.Token.IsZero() {
			l.main.faultKey(s.inputPath(),
				"is reachable from other machines without a token", "token, api.tokens, or a loopback address in api.listen")
		}
	}
}

// Token checks that a token cannot be guessed.
func (c *Checker) Token(key string, token Secret) {
	if c.Known(key) && len(token.Reveal()) < leastToken {
		c.Fault(key, "is too short", "at least 16 characters")
	}
}
