package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
)

// ErrSettings is the error of EnsureTopics for a topic whose settings are not
// those that are wanted and cannot be altered.
var ErrSettings = errors.New("a topic has other settings and they cannot be altered")

// maxMessage is the setting of a topic that is a least one: records that are in
// the topic may be as large as it is now.
const maxMessage = "max.message.bytes"

// alter compares the settings of topics that were there already with those that
// are wanted, and alters those that differ, and no other.
func (a *Admin) alter(ctx context.Context, specs []TopicSpec) error {
	wanted := make(map[string]map[string]string, len(specs))
	for _, s := range specs {
		if len(s.Configs) > 0 {
			wanted[s.Name] = s.Configs
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	found, err := a.adm.DescribeTopicConfigs(ctx, slices.Sorted(maps.Keys(wanted))...)
	if err != nil {
		return fmt.Errorf("settings of topics: %w", err)
	}
	var errs []error
	for _, topic := range found {
		if topic.Err != nil {
			// Nothing says that they are wrong.
			a.cfg.logger().Warn("cannot compare the topic's settings with the configuration: allow this user DESCRIBE_CONFIGS on it", "event", "kafka.settings_unknown", "topic", topic.Name, "error", topic.Err)
			continue
		}
		if err := a.alterOne(ctx, topic, wanted[topic.Name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (a *Admin) alterOne(ctx context.Context, topic kadm.ResourceConfig, wanted map[string]string) error {
	var alter []kadm.AlterConfig
	var said, set []string
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		is := "unknown"
		if i := slices.IndexFunc(topic.Configs, func(c kadm.Config) bool { return c.Key == name }); i >= 0 {
			is = topic.Configs[i].MaybeValue()
		}
		if !differs(name, is, wanted[name]) {
			continue
		}
		value := wanted[name]
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
		said = append(said, fmt.Sprintf("%s from %s to %s", name, is, value))
		set = append(set, name+"="+value)
	}
	if len(alter) == 0 {
		return nil
	}
	altered, err := a.adm.AlterTopicConfigs(ctx, alter, topic.Name)
	for _, r := range altered {
		err = errors.Join(err, r.Err)
	}
	if err != nil {
		return fmt.Errorf("topic %s: %s: allow this user ALTER_CONFIGS on it, or have it altered: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s: %w: %w",
			topic.Name, strings.Join(said, ", "), topic.Name, strings.Join(set, ","), ErrSettings, err)
	}
	a.cfg.logger().Warn("altered the topic's settings to those of the configuration", "event", "kafka.settings_altered", "topic", topic.Name, "altered", strings.Join(said, ", "))
	return nil
}

// differs reports whether a setting has to be altered.
func differs(name, is, wanted string) bool {
	if name == maxMessage {
		have, err1 := strconv.ParseInt(is, 10, 64)
		least, err2 := strconv.ParseInt(wanted, 10, 64)
		return err1 != nil || err2 != nil || have < least
	}
	return is != wanted
}
