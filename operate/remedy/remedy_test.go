package remedy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A remedy fits the error, not its class.
func TestRemediesFitTheError(t *testing.T) {
	for _, c := range []struct {
		what string
		err  error
		want string
	}{
		{"store", &pgconn.PgError{Code: "28P01"}, "correct the password in its url"},
		{"store", &pgconn.PgError{Code: "3D000"}, "create the database, then run weir migrate"},
		{"store", &pgconn.PgError{Code: "42P01"}, "weir migrate creates its tables"},
		{"store", store.ErrSchema, "run weir migrate; tables of a newer version need a newer weir"},
		{"acme/p@table", &pgconn.PgError{Code: "42P01"}, "create the table, or set create: true"},
		{"acme/p@warehouse", &clickhouse.Exception{Code: 516}, "correct user and password in its url"},
		{"acme/p@feed", kerr.UnknownTopicOrPartition, "create the topic, or correct its name"},
		{"kafka", kerr.SaslAuthenticationFailed, "correct user and password below sasl"},
		{"gate", errors.New("WRONGPASS invalid username-password pair"), "correct user and password of gate.valkey"},
		{"acme/p@hook", &net.DNSError{Err: "no such host", Name: "acme.exmaple"}, "correct the host name, or the name server"},
		{"acme/p@hook", context.DeadlineExceeded, "start it, or open the network's way to it: it did not answer in time"},
		{"acme/p@hook", errors.New("anything"), "correct what the error names, or start the server"},
	} {
		require.Equal(t, c.want, Of(c.what, fmt.Errorf("ask: %w", c.err)), "%s: %v", c.what, c.err)
	}
}
