package deliver

import (
	"context"

	"github.com/seed-86dfc502/weir/transport"
)

// Owner is the listener of the inbox: who owns a partition decides and delivers it.
type Owner struct {
	Decider interface {
		transport.PartitionListener
		// Owned returns partitions of the inbox and those of larger inboxes before that belong to them.
		Owned(partitions []int32) []int32
	}
	Stage *Stage // nil: it decides only
}

// Assigned implements transport.PartitionListener.
func (o Owner) Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	starts, err := o.Decider.Assigned(ctx, topic, partitions)
	if err == nil && o.Stage != nil {
		if err = o.Stage.Assigned(ctx, o.Decider.Owned(partitions)); err != nil {
			o.Decider.Revoked(topic, partitions)
		}
	}
	return starts, err
}

// Revoked implements transport.PartitionListener.
func (o Owner) Revoked(topic string, partitions []int32) {
	all := o.Decider.Owned(partitions)
	o.Decider.Revoked(topic, partitions)
	if o.Stage != nil {
		o.Stage.Revoked(all)
	}
}
