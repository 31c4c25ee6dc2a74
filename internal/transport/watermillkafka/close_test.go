package watermillkafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// absentMember joins a group and never answers to a rebalance: until it leaves,
// Kafka lets all joining members wait.
func absentMember(t *testing.T, client *kgo.Client, group, topic string) (leave func()) {
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{topic}
	join := kmsg.NewJoinGroupRequest()
	join.Group, join.ProtocolType = group, "consumer"
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 120_000, 120_000
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "sticky", metadata.AppendTo(nil) // as edge names its own
	join.Protocols = append(join.Protocols, protocol)
	resp, err := join.RequestWith(t.Context(), client)
	require.NoError(t, err)
	if errors.Is(kerr.ErrorForCode(resp.ErrorCode), kerr.MemberIDRequired) {
		join.MemberID = resp.MemberID
		resp, err = join.RequestWith(t.Context(), client)
		require.NoError(t, err)
	}
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	return func() {
		left := kmsg.NewLeaveGroupRequest()
		left.Group = group
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = resp.MemberID
		left.Members = append(left.Members, member)
		_, err := left.RequestWith(t.Context(), client)
		require.NoError(t, err)
	}
}

// A rebalance that others hold up does not hold up the end of a process: its
// channel is closed and Close returns, although sarama still waits for Kafka's
// answer.
func TestCloseDoesNotWaitForARebalance(t *testing.T) {
	cfg, prefix := realKafka(t)
	topic, group := prefix+"t", prefix+"g"
	ensure(t, cfg, topic, 1)
	brokers, _ := servers.Kafka(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	leave := absentMember(t, client, group, topic)
	admin := kadm.NewClient(client)
	members := func(n int, state string) func() bool {
		return func() bool {
			groups, err := admin.DescribeGroups(t.Context(), group)
			return err == nil && groups[group].State == state && len(groups[group].Members) >= n
		}
	}
	out, s := subscribe(t, cfg, group, topic)
	require.Eventually(t, members(1, "PreparingRebalance"), patience, 20*time.Millisecond)

	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(20 * time.Second): // sarama itself gives up after 30
		require.FailNow(t, "Close waits for the rebalance")
	}
	_, open := <-out
	require.False(t, open)

	leave()
	require.Eventually(t, func() bool {
		groups, err := admin.DescribeGroups(t.Context(), group)
		return err == nil && len(groups[group].Members) == 0
	}, patience, 20*time.Millisecond)
}
