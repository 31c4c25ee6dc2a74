package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/reach"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Rights asks the clusters of a configuration for the permissions of their users and returns
// the missing ones. answers reports whether a source or target answered: others are left out.
// A permission that a cluster does not report counts as granted.
func Rights(ctx context.Context, c *config.Config, answers func(what string) bool) []operate.Item {
	e := &examination{cfg: c}
	clusters := map[string]*entitled{}
	var order []*entitled
	need := func(what string, of config.Cluster, rights []reach.Permission) {
		if !answers(what) {
			return
		}
		cluster, tls, err := assemble.Cluster(c, of, slog.New(slog.DiscardHandler))
		if err != nil {
			e.unknown(what, err)
			return
		}
		if len(cluster.Brokers) == 0 {
			return // the logs are tables of a file
		}
		key := fmt.Sprint(cluster.Brokers, cluster.SASL, tls)
		if clusters[key] == nil {
			clusters[key] = &entitled{cluster: cluster}
			order = append(order, clusters[key])
		}
		for _, r := range rights {
			clusters[key].needs = append(clusters[key].needs, need{what, r})
		}
	}
	var own []reach.Permission
	for _, t := range assemble.Topics(c) {
		const without = "nothing is decided or delivered"
		own = append(own, reach.Permission{Topic: t.Name, Operation: "READ", Without: without, Vital: true}, reach.Permission{Topic: t.Name, Operation: "WRITE", Without: without, Vital: true})
	}
	need("kafka", c.Kafka.Cluster, own)
	for i := range c.Sources {
		if x, ok := c.Sources[i].Input.(reach.Authorizer); ok {
			of, rights := x.Rights(c.Kafka.Prefix, c.Sources[i].Name)
			need("source "+c.Sources[i].Name, of, rights)
		}
	}
	for _, s := range c.Services() {
		if x, ok := s.Delivery.Sink.(reach.Authorizer); ok {
			of, rights := x.Rights(c.Kafka.Prefix, s.Name)
			need(s.Name, of, rights)
		}
	}
	for _, x := range order {
		ask, cancel := context.WithTimeout(ctx, askTimeout)
		if err := x.ask(ask, e); err != nil {
			e.unknown(x.needs[0].what, err)
		}
		cancel()
	}
	return e.findings
}

func (e *examination) unknown(what string, err error) {
	e.add(what, operate.LevelDegraded, "the rights of its user cannot be asked for: "+oneLine(err), "look by hand (kafka-acls.sh --list)")
}

// need is a right that something needs.
type need struct {
	what string
	reach.Permission
}

// entitled is a user of a cluster, and the permissions that it needs.
type entitled struct {
	cluster transport.Config
	needs   []need
}

// ask adds the missing permissions.
func (x *entitled) ask(ctx context.Context, e *examination) error {
	client, err := dial(x.cluster)
	if err != nil {
		return err
	}
	defer client.Close()
	topics, err := topicRights(ctx, client, x.names(func(r reach.Permission) string { return r.Topic }))
	if err != nil {
		return err
	}
	denied, err := deniedTransactions(ctx, client, x.names(func(r reach.Permission) string { return r.Transactions }))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(x.needs, func(n need) bool { return n.Remembered > 0 }) {
		x.expirations(ctx, kadm.NewClient(client), e)
	}
	for _, n := range x.needs {
		resource, name, lacks := "topic", n.Topic, false
		if n.Transactions != "" {
			resource, name, lacks = "transactional-id", n.Transactions, denied[n.Transactions]
		} else if may, told := topics[n.Topic]; told {
			lacks = !slices.ContainsFunc(may, func(o kadm.ACLOperation) bool { return o.String() == n.Operation })
		}
		if !lacks {
			continue
		}
		level := operate.LevelDegraded
		if n.Vital {
			level = operate.LevelDown
		}
		pattern := ""
		if n.Prefix != "" {
			name, pattern = n.Prefix, " --resource-pattern-type prefixed"
		}
		e.add(n.what, level, fmt.Sprintf("its user may not %s the %s %s: %s", n.Operation, strings.ReplaceAll(resource, "-", " "), name, n.Without),
			fmt.Sprintf("kafka-acls.sh --add --allow-principal User:%s --operation %s --%s %s%s", x.user(), strings.ToLower(n.Operation), resource, name, pattern))
	}
	return nil
}

// expirations adds the settings by which brokers forget transactional ids too early. Who may
// not read settings of brokers learns nothing of them.
func (x *entitled) expirations(ctx context.Context, admin *kadm.Client, e *examination) {
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return
	}
	described, err := admin.DescribeBrokerConfigs(ctx, brokers.NodeIDs()...)
	if err != nil {
		return
	}
	for _, setting := range []string{"transactional.id.expiration.ms", "producer.id.expiration.ms"} {
		shortest, known := time.Duration(0), false
		for _, broker := range described {
			for _, c := range broker.Configs {
				if ms := number(c.MaybeValue()); c.Key == setting && ms > 0 && (!known || time.Duration(ms)*time.Millisecond < shortest) {
					shortest, known = time.Duration(ms)*time.Millisecond, true
				}
			}
		}
		for _, n := range x.needs {
			if known && shortest < n.Remembered {
				e.add(n.what, operate.LevelDegraded, fmt.Sprintf("%s of a broker is %s: %s", setting, shortest, n.Without),
					fmt.Sprintf("set %s to %d or more on every broker", setting, (2*n.Remembered).Milliseconds()))
			}
		}
	}
}

// user is the name that a right is given to.
func (x *entitled) user() string {
	if x.cluster.SASL.User == "" {
		return "NAME" // authenticated by a certificate, or anonymous
	}
	return x.cluster.SASL.User
}

func (x *entitled) names(of func(reach.Permission) string) []string {
	var names []string
	for _, n := range x.needs {
		if name := of(n.Permission); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// topicRights returns the user's permissions on the topics, as far as the cluster reports them.
func topicRights(ctx context.Context, client *kgo.Client, topics []string) (map[string][]kadm.ACLOperation, error) {
	may := map[string][]kadm.ACLOperation{}
	if len(topics) == 0 {
		return may, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, t := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, topic)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		const notTold = -1 << 31
		if t.ErrorCode == 0 && t.Topic != nil && t.AuthorizedOperations != notTold {
			may[*t.Topic] = kadm.DecodeACLOperations(t.AuthorizedOperations)
		}
	}
	return may, nil
}

// deniedTransactions returns the transactional ids that the user may not even describe,
// which who may write to them can. An answer that says less is taken for a yes: only to
// ask for an identity would tell, and that ends the one who has it.
func deniedTransactions(ctx context.Context, client *kgo.Client, ids []string) (map[string]bool, error) {
	denied := map[string]bool{}
	if len(ids) == 0 {
		return denied, nil
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	versions, err := kadm.NewClient(client).ApiVersions(ctx)
	if err != nil {
		return nil, err
	}
	for _, broker := range versions.Sorted() {
		if _, knows := broker.KeyMaxVersion(req.Key()); !knows { // before 3.0
			return denied, nil
		}
	}
	for _, shard := range client.RequestSharded(ctx, req) {
		switch {
		case errors.Is(shard.Err, kerr.TransactionalIDAuthorizationFailed): // already by who asks for the coordinator
			for _, id := range shard.Req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				denied[id] = true
			}
		case shard.Err != nil:
			return nil, shard.Err
		default:
			for _, t := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
				denied[t.TransactionalID] = errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.TransactionalIDAuthorizationFailed)
			}
		}
	}
	return denied, nil
}
