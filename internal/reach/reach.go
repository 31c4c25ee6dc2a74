// Package reach checks that the targets of a configuration can be reached: that servers answer
// the configured user, and that files can be read or made. It changes nothing.
package reach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Target is a kind of source or sink that can be checked.
type Target interface {
	// Ask returns why it cannot be reached. cluster returns how the cluster of the kind is
	// reached, or the main one.
	Ask(ctx context.Context, cluster func(own config.Cluster) (transport.Config, error)) error
}

// Partial is a Target whose check leaves something open.
type Partial interface {
	// Unchecked names it, as a clause: "its credentials are not checked, since …".
	Unchecked() string
}

// Advice is an error of Ask for a Target that answers, and should be set up in another way.
type Advice struct {
	Why, Do string
	// Expected says that nothing is wrong: the state before the first start.
	Expected bool
}

func (a *Advice) Error() string { return a.Why + ": " + a.Do }

// Permission is an operation on a topic, or on a transactional id, that the user of a
// cluster needs.
type Permission struct {
	Topic, Transactions string // one of both
	Prefix              string // of all such ids, to be granted as a whole
	Operation           string // READ or WRITE
	Without             string // the consequence of its absence
	Vital               bool   // nothing works without it
	// Remembered is how long the cluster must remember an unused transactional id, 0 for topics.
	Remembered time.Duration
}

// Authorizer is a kind of source or sink that needs permissions in a cluster.
type Authorizer interface {
	// Rights returns the permissions that a source or service of that name needs, and in
	// which cluster: the main one where it has no brokers.
	Rights(pipeline, name string) (of config.Cluster, rights []Permission)
}

// Connect opens one connection. url may have settings of a pool.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	client, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, client.ConnConfig)
}

// Postgres connects and asks for an answer. url is as in Connect.
func Postgres(ctx context.Context, url string) error {
	conn, err := Connect(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(conn.Ping(ctx), conn.Close(context.WithoutCancel(ctx)))
}

// Topic asks a cluster for a topic. One that is made by need may be missing. Without
// brokers there is no cluster to ask.
func Topic(ctx context.Context, cluster transport.Config, topic string, made bool) error {
	if len(cluster.Brokers) == 0 {
		return nil
	}
	admin, err := transport.NewAdmin(cluster)
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.TopicID(ctx, topic)
	if made && errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return err
}

// Folder reports whether a file is there and can be written, or could be made:
// the nearest folder above it that exists must take it.
func Folder(path string) error {
	const mayWrite, mayEnter = 2, 1
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return fmt.Errorf("%s: %w", path, syscall.EISDIR)
		}
		if err := syscall.Access(path, mayWrite); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fmt.Errorf("%s: %w", dir, syscall.ENOTDIR)
		case err == nil:
			if err := syscall.Access(dir, mayWrite|mayEnter); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
			return nil
		case filepath.Dir(dir) == dir:
			return err
		}
	}
}
