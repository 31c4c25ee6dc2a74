package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// kafka examines the cluster and the internal topics.
func (e *examination) kafka(ctx context.Context) error {
	cluster, _, err := assemble.Cluster(e.cfg, e.cfg.Kafka.Cluster, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	client, err := dial(cluster)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	brokers, err := admin.ListBrokers(ctx)
	if err != nil {
		return err
	}
	if versions, err := admin.ApiVersions(ctx); err == nil && len(versions.Sorted()) > 0 {
		e.fact("Kafka %s", versions.Sorted()[0].VersionGuess())
	}
	e.fact("%d brokers", len(brokers))
	specs := assemble.Topics(e.cfg)
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	topics, err := admin.ListTopics(ctx, names...)
	if err != nil {
		return err
	}
	settings := map[string]map[string]string{}
	described, err := admin.DescribeTopicConfigs(ctx, names...)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		e.add("kafka", operate.LevelDegraded, "the settings of its topics cannot be read: "+err.Error(), "allow this user DESCRIBE_CONFIGS on "+strings.Join(names, ", "))
	}
	for _, t := range described {
		settings[t.Name] = map[string]string{}
		for _, c := range t.Configs {
			settings[t.Name][c.Key] = c.MaybeValue()
		}
	}
	for _, s := range specs {
		t, there := topics[s.Name]
		if !there || errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			e.fact("topic %s is made at the start", s.Name)
			continue
		}
		e.topic(s, t, settings[s.Name], len(brokers))
	}
	return nil
}

// dial returns a client of a cluster.
func dial(cluster transport.Config) (*kgo.Client, error) {
	options, err := transport.NewClientOpts(cluster)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(options...)
}

// topic examines one topic that is there.
func (e *examination) topic(want transport.TopicSpec, is kadm.TopicDetail, settings map[string]string, brokers int) {
	what := "topic " + want.Name
	if n := len(is.Partitions); n != int(want.Partitions) {
		e.add(what, operate.LevelDown, fmt.Sprintf("it has %d partitions, and the configuration says %d", n, want.Partitions), fmt.Sprintf("set kafka.inbox.partitions to %d: the number is fixed when the inbox is made", n))
	}
	replicas := brokers
	var lost []int32
	for _, p := range is.Partitions.Sorted() {
		replicas = min(replicas, len(p.Replicas))
		if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
			lost = append(lost, p.Partition)
		}
	}
	if len(lost) > 0 {
		e.add(what, operate.LevelDegraded, fmt.Sprintf("partitions %v have unreachable replicas", lost), "bring their brokers back")
	}
	least, _ := strconv.Atoi(settings["min.insync.replicas"])
	switch {
	case brokers > 1 && replicas < 2:
		e.add(what, operate.LevelDegraded, "it has one replica: a broker that is lost takes acknowledged records with it", "reassign it with three replicas (kafka-reassign-partitions.sh)")
	case replicas > 2 && least == 1:
		e.add(what, operate.LevelDegraded, "min.insync.replicas is 1: a record may be acknowledged that one broker has, and be lost with it", "kafka-configs.sh --alter --entity-type topics --entity-name "+want.Name+" --add-config min.insync.replicas=2")
	case least >= replicas && replicas > 1:
		e.add(what, operate.LevelDegraded, fmt.Sprintf("min.insync.replicas is %d of %d replicas: it takes no records while one broker is unreachable", least, replicas), "more replicas, or a smaller min.insync.replicas")
	default:
		e.fact("%s: %d partitions, %d replicas", want.Name, len(is.Partitions), replicas)
	}
	if settings["unclean.leader.election.enable"] == "true" {
		e.add(what, operate.LevelDown, "unclean.leader.election.enable is true: acknowledged records may be lost", "kafka-configs.sh --alter --entity-type topics --entity-name "+want.Name+" --add-config unclean.leader.election.enable=false")
	}
	for _, name := range slices.Sorted(maps.Keys(want.Configs)) {
		have, known := settings[name]
		if wanted := want.Configs[name]; known && have != wanted && !(name == "max.message.bytes" && number(have) >= number(wanted)) {
			e.add(what, operate.LevelDegraded, fmt.Sprintf("%s is %s, and the configuration says %s", name, have, wanted), "the next start alters it; it needs the right ALTER_CONFIGS")
		}
	}
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}
