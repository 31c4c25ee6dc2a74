// Package remedy returns remedies for errors of servers, sources and targets. A remedy fits the
// error, not its class: status, doctor and the operators' page share it.
package remedy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"regexp"
	"strings"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sources/postgres"
	"github.com/seed-86dfc502/weir/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Remedies by the code of PostgreSQL, ClickHouse and Kafka.
var (
	postgresRemedies = map[string]string{
		"28P01": "correct the password in its url", "28000": "correct the user in its url, or allow it in pg_hba.conf",
		"3D000": "create the database, or correct its name in the url", "3F000": "create the schema, or correct search_path",
		"42P01": "create the table, or set create: true", "42501": "grant this user the privilege that the error names",
		"42703": "add the column to the table, or correct columns", "25006": "let the url name the primary, for instance with target_session_attrs=read-write",
		"53300": "raise max_connections, or put a pooler in front", "57P03": "wait: the server is starting or recovering",
		"53100": "make room on the server's disk", "57014": "raise the server's statement_timeout, or find the operator who cancelled the statement",
	}
	// storeRemedies come before postgresRemedies for the store.
	storeRemedies      = map[string]string{"42P01": "weir migrate creates its tables", "3D000": "create the database, then run weir migrate"}
	clickhouseRemedies = map[int32]string{
		516: "correct user and password in its url", 192: "correct the user in its url", 193: "correct the password in its url",
		81: "create the database, or correct its name in the url", 60: "create the table, or set create: true",
		497: "grant this user the privilege that the error names", 164: "take readonly from this user, or name another one in the url",
		16: "add the column to the table, or correct columns", 243: "make room on the server's disk",
	}
	kafkaRemedies = map[*kerr.Error]string{
		kerr.UnknownTopicOrPartition:  "create the topic, or correct its name",
		kerr.SaslAuthenticationFailed: "correct user and password below sasl", kerr.UnsupportedSaslMechanism: "set sasl.mechanism to one that the brokers offer",
		kerr.TopicAuthorizationFailed: "allow this user the topic (kafka-acls.sh --add)", kerr.ClusterAuthorizationFailed: "allow this user the cluster (kafka-acls.sh --add)",
		kerr.TransactionalIDAuthorizationFailed: "allow this user the transactional id (kafka-acls.sh --add --transactional-id)",
		kerr.NotEnoughReplicas:                  "bring the topic's brokers back, or lower its min.insync.replicas", kerr.InvalidTopicException: "correct the topic's name",
	}
)

// clockWords matches answers of a target that rejects a time.
var clockWords = regexp.MustCompile(`(?i)\b(timestamp|clock|skew|not yet valid|not valid yet)\b`)

// other words of servers that have no codes.
var byWords = []struct{ words, do string }{
	{"WRONGPASS", "correct user and password of gate.valkey"}, {"NOAUTH", "correct user and password of gate.valkey"},
	{"NOPERM", "allow this user SET, GET, EVALSHA and TIME on the prefix of the gate (ACL SETUSER)"},
	{"READONLY", "let gate.valkey.address name the primary, not a replica"},
	{"OOM command not allowed", "give the server more memory, or CONFIG SET maxmemory-policy volatile-ttl"},
	{"MISCONF", "make room on the server's disk, where its snapshots fail"}, {"LOADING", "wait: the server loads its data"},
	{"unknown authority", "correct the certificate of the server, or name its authority in tls.ca"},
	{"certificate has expired", "renew the certificate of the server"},
	{"certificate is for another host", "correct the host name in the url, or the certificate of the server"},
	{"refused TLS", "let the server offer TLS, or say sslmode=disable where no third party can read the traffic"},
	{"answer in time", "start it, or open the network's way to it: it did not answer in time"},
	{"not resolved", "correct the host name, or the name server"},
	{"does not answer with TLS", "correct the scheme or port of the url: the server does not speak TLS there"},
	{"not UTF-8", "write the source as UTF-8"}, {"UTF-16", "convert the file to UTF-8"},
}

// Of returns the remedy of an error of what: "store", "gate", "kafka", a source or a service. It
// prefers the hint of a sink.
func Of(what string, err error) string {
	var (
		sink        *sinks.Error
		fault       *postgres.SetupError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		name        *net.DNSError
		network     net.Error
	)
	if do := byCode(what, err); do != "" {
		return do
	}
	if do := inWords(err.Error()); do != "" {
		return do
	}
	if errors.As(err, &sink) && sink.Hint != "" {
		return sink.Hint
	}
	switch {
	case errors.Is(err, store.ErrSchema):
		return "run weir migrate; tables of a newer version need a newer weir"
	case errors.As(err, &certificate), errors.As(err, &authority):
		return "correct the certificate of the server, or name its authority in tls.ca"
	case errors.As(err, &name):
		return "correct the host name, or the name server"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start it, or correct its host and port"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "make room on the disk"
	case errors.Is(err, syscall.EROFS):
		return "mount the disk for writing, or correct the path"
	case errors.Is(err, fs.ErrNotExist):
		return "create the file, or correct its path"
	case errors.Is(err, fs.ErrPermission):
		return "give the user of weir access to it"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		return "correct the path: a file is where a folder must be, or the reverse"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "start it, or open the network's way to it: it did not answer in time"
	}
	if errors.As(err, &fault) {
		return "correct what the error names"
	}
	if sink != nil {
		return "correct what the target's answer names, or ask its operator"
	}
	return "correct what the error names, or start the server"
}

// OfText returns the remedy of an error's text, or empty if unknown.
func OfText(text string) string { return inWords(text) }

func inWords(text string) string {
	if clockWords.MatchString(text) && !strings.Contains(text, "certificate") {
		return "let this machine's clock and the target's follow NTP (chrony, systemd-timesyncd)"
	}
	for _, w := range byWords {
		if strings.Contains(text, w.words) {
			return w.do
		}
	}
	return ""
}

// byCode returns the remedy for a server's error code, or empty.
func byCode(what string, err error) string {
	var (
		pg     *pgconn.PgError
		ch     *clickhouse.Exception
		broker *kerr.Error
	)
	switch {
	case errors.As(err, &pg):
		if what == "store" {
			if do := storeRemedies[pg.Code]; do != "" {
				return do
			}
		}
		return postgresRemedies[pg.Code]
	case errors.As(err, &ch):
		return clickhouseRemedies[ch.Code]
	case errors.As(err, &broker):
		return kafkaRemedies[broker]
	}
	return ""
}

// plainWord is a word that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Word returns an argument of a command as a shell reads it.
func Word(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
