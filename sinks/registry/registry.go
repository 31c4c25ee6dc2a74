// Package registry lists the kinds of sinks.
package registry

import (
	"github.com/seed-86dfc502/weir/sinks/clickhouse"
	"github.com/seed-86dfc502/weir/sinks/file"
	"github.com/seed-86dfc502/weir/sinks/kafka"
	"github.com/seed-86dfc502/weir/sinks/kind"
	"github.com/seed-86dfc502/weir/sinks/postgres"
	"github.com/seed-86dfc502/weir/sinks/webhook"
)

// Kinds returns a value of each kind, in the order in which they are listed.
func Kinds() []kind.Sink {
	return []kind.Sink{
		&file.Config{},
		&kafka.Config{},
		&webhook.Config{},
		&clickhouse.Config{},
		&postgres.Config{},
	}
}
