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
		checkDatabase(l.main, "store.postgres.url", s.URL)
	}
}

// checkDatabase checks a PostgreSQL connection string.
func checkDatabase(doc *document, path string, secret Secret) {
	if !doc.known(path) || secret.IsZero() {
		return
	}
	text := secret.Reveal()
	if !strings.Contains(text, "://") {
		switch {
		case !strings.Contains(text, "="):
			doc.fault(path, "is not a connection string", wantDatabase)
		case badPort(text):
			doc.fault(path, "has a port that is none", wantPort)
		}
		return
	}
	checkURL(doc, path, secret, wantDatabase, "postgres", "postgresql")
}

// checkURL checks a URL and its scheme.
func checkURL(doc *document, path string, secret Secret, want string, schemes ...string) {
	if !doc.known(path) || secret.IsZero() {
		return
	}
	u, err := url.Parse(secret.Reveal())
	switch {
	case err != nil:
		doc.fault(path, "is not a URL", want)
	case !contains(schemes, u.Scheme):
		doc.fault(path, "is a URL of another kind", want)
	case u.Host == "":
		doc.fault(path, "is a URL without a host", want)
	case badPort(secret.Reveal()):
		doc.fault(path, "has a port that is none", wantPort)
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
	for i, address := range v.Address {
		path := element("gate.valkey.address", i)
		if _, single := l.main.values["gate.valkey.address"]; single {
			path = "gate.valkey.address"
		}
		checkAddress(l.main, path, address)
	}
	if len(v.Address) > 1 && v.DB != 0 {
		l.main.fault("gate.valkey.db", "is not 0, the only database of a cluster", "0, or a single address")
	}
	l.checkTLS(l.main, "gate.valkey.tls", v.TLS)
}

// checkAddress checks host:port.
func checkAddress(doc *document, path, address string) {
	if !doc.known(path) {
		return
	}
	host, port, err := net.SplitHostPort(address)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || bad != nil || n == 0 {
		doc.fault(path, "is not an address", wantAddress)
	}
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

func (l *loader) checkKafka() {
	k := &l.config.Kafka
	l.checkCluster(l.main, "kafka", &k.Cluster)
	if l.main.known("kafka.prefix") && !prefixPattern.MatchString(k.Prefix) {
		l.main.fault("kafka.prefix", "cannot begin the name of a topic", "1 to 32 of letters, digits, ., _ and -")
	}
	checkTopic(l.main, "kafka.inbox.topic", k.Inbox.Topic)
	checkTopic(l.main, "kafka.changes.topic", k.Changes.Topic)
	// Kafka takes a dot and an underscore for the same in the names of its metrics,
	// and refuses the second topic.
	metric := strings.NewReplacer(".", "_")
	if metric.Replace(k.Inbox.Topic) == metric.Replace(k.Changes.Topic) {
		l.main.faultKey("kafka.changes.topic", "is a name that Kafka cannot tell from that of the inbox", "a topic of its own")
	}
	if l.main.known("kafka.replication") && k.Replication == 0 {
		l.main.fault("kafka.replication", "is no replica at all", "-1 for the servers' default, or 1 and more")
	}
	if len(k.Brokers) > 0 || l.main.has("kafka.brokers") {
		return
	}
	if k.Replication > 1 {
		l.main.faultKey("kafka", "asks for replicas, and has no brokers that could keep any", "brokers, or a replication of -1 or 1")
	}
	if l.config.Store.Postgres != nil {
		l.main.faultKey("store.postgres", "is without a place for inbox and changes log: without brokers they are tables of the SQLite file", "kafka.brokers, or no store.postgres")
	}
}

// checkReached checks how the cluster of a source or a sink is reached.
func (l *loader) checkReached(doc *document, path string, c *Cluster) {
	l.checkCluster(doc, path, c)
	if len(c.Brokers) == 0 && len(l.config.Kafka.Brokers) == 0 && !doc.has(member(path, "brokers")) && !l.main.has("kafka.brokers") {
		doc.faultKey(path, "names no brokers, and the main kafka key has none either", "brokers in one of the two")
	}
}

// checkCluster checks how a cluster is reached.
func (l *loader) checkCluster(doc *document, path string, c *Cluster) {
	for i, broker := range c.Brokers {
		checkAddress(doc, element(member(path, "brokers"), i), broker)
	}
	if doc.has(member(path, "brokers")) && len(c.Brokers) == 0 {
		doc.faultKey(member(path, "brokers"), "is empty", "at least one host:port")
	}
	if len(c.Brokers) == 0 {
		for _, key := range []string{"tls", "sasl", "insecure"} {
			if doc.has(member(path, key)) {
				doc.faultKey(member(path, key), "has no effect without brokers", "brokers beside it")
			}
		}
	}
	l.checkTLS(doc, member(path, "tls"), c.TLS)
}

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

func checkTopic(doc *document, path, topic string) {
	if doc.known(path) && topic != "" && (!topicPattern.MatchString(topic) || topic == "." || topic == "..") {
		doc.fault(path, "is not the name of a topic", "1 to 249 of letters, digits, ., _ and -")
	}
}

// checkTLS checks the files of a client.
func (l *loader) checkTLS(doc *document, path string, t *TLS) {
	if t == nil {
		return
	}
	switch {
	case t.Cert != "" && t.Key == "":
		doc.faultKey(path, "has cert without key", "both or neither")
	case t.Key != "" && t.Cert == "":
		doc.faultKey(path, "has key without cert", "both or neither")
	case t.Cert != "":
		l.checkKeyPair(doc, path, t.Cert, t.Key)
	}
	l.checkCertificates(doc, member(path, "ca"), t.CA)
}

// checkCertificates checks a file of certificates, if one is named.
func (l *loader) checkCertificates(doc *document, path, file string) {
	if file == "" || !doc.known(path) || l.allowUnset {
		return
	}
	pem, err := os.ReadFile(file)
	switch {
	case err != nil:
		doc.fault(path, "cannot be read", "a PEM file of certificates")
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		doc.fault(path, "holds no certificate", "a PEM file of certificates")
	}
}

func (l *loader) checkKeyPair(doc *document, path, cert, key string) {
	if l.allowUnset || !doc.known(member(path, "cert")) || !doc.known(member(path, "key")) {
		return
	}
	good := true
	for _, file := range []struct{ key, path string }{{"cert", cert}, {"key", key}} {
		if _, err := os.Stat(file.path); err != nil {
			doc.fault(member(path, file.key), "cannot be read", "a PEM file")
			good = false
		}
	}
	if !good {
		return
	}
	// The error is left out: it may repeat the file's content.
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		doc.fault(member(path, "cert"), "and key are not a pair", "a certificate and its private key, in PEM")
	}
}

func (l *loader) checkListeners() {
	c := &l.config
	open := claims{}
	listen := func(key, address string, t *ServerTLS) (beyond bool) {
		path := member(key, "listen")
		if t != nil && t.Cert != "" && t.Key != "" {
			l.checkKeyPair(l.main, member(key, "tls"), t.Cert, t.Key)
		}
		if l.main.values[path].unresolved {
			return false
		}
		host, port, err := net.SplitHostPort(address)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
			l.main.fault(path, "is not an address", `host:port, like "127.0.0.1:9600"`)
			return false
		}
		if first, taken := open.take(address, path, l.main.at(path)); taken && port != "0" {
			l.main.fault(path, "is the address of "+first.who+" too", "an address of its own")
		}
		ip := net.ParseIP(host)
		return host != "localhost" && (ip == nil || !ip.IsLoopback())
	}
	if !c.Admin.Off() {
		if listen("admin", c.Admin.Listen, c.Admin.TLS) && c.Admin.Token.IsZero() {
			l.main.fault("admin.listen", "is reachable from other machines without a token", "admin.token, or a loopback address")
		}
	}
	checkToken(l.main, "admin.token", c.Admin.Token)
	checkToken(l.main, "admin.metrics_token", c.Admin.MetricsToken)
	if !c.Admin.MetricsToken.IsZero() && c.Admin.MetricsToken.Reveal() == c.Admin.Token.Reveal() {
		l.main.fault("admin.metrics_token", "is admin.token", "a token of its own")
	}
	if !c.NeedsAPI() {
		return
	}
	if k := c.API.Idempotency; k.Retention.D() < c.API.Timeout.D() {
		// The first attempt would still be under way when its key is new again.
		l.main.fault("api.idempotency.retention", "is shorter than a request may take", "at least api.timeout")
	}
	var certificate *ServerTLS
	if t := c.API.TLS; t != nil {
		certificate = &t.ServerTLS
		l.checkCertificates(l.main, "api.tls.client_ca", t.ClientCA)
	}
	beyond := listen("api", c.API.Listen, certificate)
	if c.API.Tokens != "" {
		return
	}
	posted := slices.ContainsFunc(c.Sources, func(s Source) bool { return isPosted(&s) })
	if beyond && (len(c.Checks) > 0 || !posted) {
		l.main.fault("api.listen", "is reachable from other machines without tokens", "api.tokens, or a loopback address")
	}
	for i := range c.Sources {
		s := &c.Sources[i]
		if e, posted := s.Endpoint(); posted && beyond && e.Token.IsZero() {
			l.main.faultKey(s.inputPath(),
				"is reachable from other machines without a token", "token, api.tokens, or a loopback address in api.listen")
		}
	}
}

// checkToken checks that a token cannot be guessed.
func checkToken(doc *document, path string, token Secret) {
	if doc.known(path) && len(token.Reveal()) < leastToken {
		doc.fault(path, "is too short", "at least 16 characters")
	}
}
