// Package registry lists the kinds of sources.
package registry

import (
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/sources/file"
	"github.com/seed-86dfc502/weir/sources/kafka"
	"github.com/seed-86dfc502/weir/sources/outbox"
	"github.com/seed-86dfc502/weir/sources/postgres"
	"github.com/seed-86dfc502/weir/sources/push"
)

// Kinds returns a value of each kind, in the order in which they are listed.
func Kinds() []sources.Kind {
	return []sources.Kind{
		&kafka.Config{},
		&push.Config{},
		&file.Config{},
		&outbox.Config{},
		&postgres.Config{},
	}
}
