package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// guarded is a configuration with a source and a sink in a cluster whose user may do that.
func guarded(t *testing.T, may ...kfake.ACL) *config.Config {
	return guardedBy(t, nil, may...)
}

// guardedBy is guarded with settings of the broker.
func guardedBy(t *testing.T, settings map[string]string, may ...kfake.ACL) *config.Config {
	t.Helper()
	brokers, err := kfake.NewCluster(kfake.BrokerConfigs(settings), kfake.NumBrokers(1), kfake.SeedTopics(1, "in", "feed"), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("PLAIN", "admin", "admin"), kfake.User("PLAIN", "weir", "secret", may...))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	cluster := `brokers: ["` + strings.Join(brokers.ListenAddrs(), `", "`) + `"], sasl: {mechanism: plain, username: weir, password: secret}, topic: `
	write("weir.yaml", "kafka: {prefix: weir}\nsources: {in: {kafka: {"+cluster+"in}, entity: id}}\ncustomers: [acme.yaml]\n")
	write("acme.yaml", "customer: acme\nprojections: {p: {fields: {id: id}, deliver: {feed: {kafka: {"+cluster+"feed}}}}}\n")
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	return c
}

func may(kind kmsg.ACLResourceType, name string, operation kmsg.ACLOperation) kfake.ACL {
	return kfake.ACL{Resource: kind, Name: name, Pattern: kmsg.ACLResourcePatternTypePrefixed, Operation: operation, Allow: true}
}

// A Kafka sink needs more than to write: without the rest it works, and a change may come
// twice after a takeover, which is said before.
func TestWhatUsersOfKafkaMay(t *testing.T) {
	const topic, transactions = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeTransactionalId
	all := []kfake.ACL{may(topic, "in", kmsg.ACLOperationRead), may(topic, "feed", kmsg.ACLOperationWrite), may(topic, "feed", kmsg.ACLOperationRead), may(transactions, "weir.", kmsg.ACLOperationWrite)}
	yes := func(string) bool { return true }
	require.Empty(t, Rights(t.Context(), guarded(t, all...), yes))

	describes := []kfake.ACL{may(topic, "in", kmsg.ACLOperationDescribe), may(topic, "feed", kmsg.ACLOperationDescribe)}
	c := guarded(t, describes...)
	require.Empty(t, Rights(t.Context(), c, func(string) bool { return false }), "what does not answer is not asked")
	require.Equal(t, []operate.Item{
		{What: "source in", Level: operate.LevelDown, Why: "its user may not READ the topic in: nothing of it is taken in", Do: "kafka-acls.sh --add --allow-principal User:weir --operation read --topic in"},
		{What: "acme/p@feed", Level: operate.LevelDown, Why: "its user may not WRITE the topic feed: nothing is delivered", Do: "kafka-acls.sh --add --allow-principal User:weir --operation write --topic feed"},
		{What: "acme/p@feed", Level: operate.LevelDegraded, Why: "its user may not READ the topic feed: after a takeover what was written and not saved comes twice", Do: "kafka-acls.sh --add --allow-principal User:weir --operation read --topic feed"},
		{What: "acme/p@feed", Level: operate.LevelDegraded, Why: "its user may not WRITE the transactional id weir.: after a takeover what the process before had on its way may come twice", Do: "kafka-acls.sh --add --allow-principal User:weir --operation write --transactional-id weir. --resource-pattern-type prefixed"},
	}, Rights(t.Context(), c, yes))
}

// A broker that forgets a transactional id while a process may still write under it fences no
// predecessor.
func TestBrokersThatForgetTransactionalIDs(t *testing.T) {
	all := []kfake.ACL{
		may(kmsg.ACLResourceTypeTopic, "", kmsg.ACLOperationAll), may(kmsg.ACLResourceTypeTransactionalId, "weir.", kmsg.ACLOperationWrite),
		{Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster", Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: kmsg.ACLOperationDescribeConfigs, Allow: true},
	}
	yes := func(string) bool { return true }
	for value, want := range map[string]bool{"3600000": true, "43199999": true, "43200000": false, "604800000": false} {
		found := Rights(t.Context(), guardedBy(t, map[string]string{"transactional.id.expiration.ms": value}, all...), yes)
		if !want {
			require.Empty(t, found, value)
			continue
		}
		require.Len(t, found, 1, value)
		require.Equal(t, "acme/p@feed", found[0].What)
		require.Contains(t, found[0].Why, "transactional.id.expiration.ms of a broker is ")
		require.Equal(t, "set transactional.id.expiration.ms to 86400000 or more on every broker", found[0].Do)
	}
	unseen := guardedBy(t, map[string]string{"transactional.id.expiration.ms": "3600000"}, all[:2]...)
	require.Empty(t, Rights(t.Context(), unseen, yes), "who may not read settings learns nothing")
}
