package transport

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// balancer shares partitions out evenly, or assigns all of them to one member. The group's
// leader decides, so the members need not agree while they change their configuration.
func balancer(sole bool) kgo.GroupBalancer {
	if sole {
		return soleBalancer{kgo.CooperativeStickyBalancer()}
	}
	return kgo.CooperativeStickyBalancer()
}

// soleBalancer assigns every partition to the group's leader, which stays the leader until it
// leaves. It keeps the protocol of the balancer that it embeds.
type soleBalancer struct{ kgo.GroupBalancer }

// MemberBalancer implements kgo.GroupBalancer.
func (s soleBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	b, err := kgo.NewConsumerBalancer(s, members)
	return b, b.MemberTopics(), err
}

// Balance implements kgo.ConsumerBalancerBalance.
func (soleBalancer) Balance(b *kgo.ConsumerBalancer, topics map[string]int32) kgo.IntoSyncAssignment {
	plan := b.NewPlan()
	for i := range b.Members() {
		m := &b.Members()[i]
		if m.MemberID != b.Info().LeaderID {
			continue
		}
		for topic, partitions := range topics {
			for p := range partitions {
				plan.AddPartition(m, topic, p)
			}
		}
	}
	plan.AdjustCooperative(b) // members that lose partitions revoke them first
	return plan
}
