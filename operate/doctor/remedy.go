package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"strings"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kerr"
)

// remedies by the code of PostgreSQL, ClickHouse and Kafka.
var (
	postgresRemedies = map[string]string{
		"28P01": "correct the password in its url", "28000": "correct the user in its url, or allow it in pg_hba.conf",
		"3D000": "create the database, or correct its name in the url", "3F000": "create the schema, or correct search_path",
		"42P01": "create the table, or set create: true", "42501": "grant this user the privilege that the error names",
		"53300": "raise max_connections, or put a pooler in front", "57P03": "wait: the server is starting or recovering",
	}
	clickhouseRemedies = map[int32]string{
		516: "correct user and password in its url", 192: "correct the user in its url", 193: "correct the password in its url",
		81: "create the database, or correct its name in the url", 60: "create the table, or set create: true",
		497: "grant this user the privilege that the error names",
	}
	kafkaRemedies = map[*kerr.Error]string{
		kerr.UnknownTopicOrPartition:  "create the topic, or correct its name",
		kerr.SaslAuthenticationFailed: "correct user and password below sasl", kerr.UnsupportedSaslMechanism: "set sasl.mechanism to one that the brokers offer",
		kerr.TopicAuthorizationFailed: "allow this user the topic (kafka-acls.sh --add)", kerr.ClusterAuthorizationFailed: "allow this user the cluster (kafka-acls.sh --add)",
	}
)

// remedy returns what to do about the error of something that does not answer.
func remedy(what string, err error) string {
	var (
		pg          *pgconn.PgError
		ch          *clickhouse.Exception
		broker      *kerr.Error
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		network     net.Error
	)
	text := err.Error()
	do := ""
	switch {
	case errors.As(err, &pg):
		if do = postgresRemedies[pg.Code]; do != "" && what == "store" && (pg.Code == "42P01" || pg.Code == "3D000") {
			do = map[string]string{"42P01": "weir migrate creates its tables", "3D000": "create the database, then run weir migrate"}[pg.Code]
		}
	case errors.As(err, &ch):
		do = clickhouseRemedies[ch.Code]
	case errors.As(err, &broker):
		do = kafkaRemedies[broker]
	case strings.Contains(text, "WRONGPASS"), strings.Contains(text, "NOAUTH"):
		do = "correct user and password of gate.valkey"
	case strings.Contains(text, "NOPERM"):
		do = "allow this user SET, GET, EVALSHA and TIME on the prefix of the gate (ACL SETUSER)"
	case errors.As(err, &certificate), errors.As(err, &authority):
		do = "correct the certificate of the server, or name its authority in tls.ca"
	case errors.As(err, &name):
		do = "correct the host name, or the name server"
	case errors.Is(err, syscall.ECONNREFUSED):
		do = "start it, or correct its host and port"
	case errors.Is(err, fs.ErrNotExist):
		do = "create the file, or correct its path"
	case errors.Is(err, fs.ErrPermission):
		do = "give the user of weir access to it"
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		do = "correct the path: a file is where a folder must be, or the reverse"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		do = "start it, or open the network's way to it: it did not answer in time"
	}
	if do == "" {
		do = "correct what the error names, or start the server"
	}
	return do
}
