package kafka

import (
	"context"
	"errors"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
)

// classify says what an error of the cluster means. The table is in the package's documentation.
func classify(err error) *sinks.Error {
	e := &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Unreachable: unreachable(err), Err: reason.Of(err)}
	refuse := func(class sinks.Class, hint string) {
		e.Class, e.Ambiguous, e.Hint = class, false, hint
	}
	var answer *kerr.Error
	if !errors.As(err, &answer) {
		return e
	}
	switch answer {
	case kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp:
		refuse(sinks.Reject, "")
	case kerr.UnknownTopicOrPartition, kerr.InvalidTopicException:
		refuse(sinks.Pause, "create the topic, or correct its name")
	case kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
		kerr.TransactionalIDAuthorizationFailed, kerr.IllegalSaslState, kerr.UnsupportedSaslMechanism:
		refuse(sinks.Pause, "check the credentials and their rights to write to the topic")
	case kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat, kerr.InvalidRequiredAcks,
		kerr.UnsupportedCompressionType, kerr.PolicyViolation, kerr.SecurityDisabled:
		refuse(sinks.Pause, "the broker does not support the sink's requirements")
	}
	return e
}

// unreachable reports whether an error is that of a dial. An answer of a broker is about a topic
// or a partition.
func unreachable(err error) bool {
	var answer *kerr.Error
	var network *net.OpError
	return !errors.As(err, &answer) && errors.As(err, &network) && network.Op == "dial" && !errors.Is(err, context.Canceled)
}
