package kafka

import (
	"errors"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/seed-86dfc502/weir/sinks"
)

// classify says what an error of the publisher means; the table is in the
// package's documentation. It knows the errors of both Kafka clients, since
// either may stand behind a publisher; the protocol's codes are the same.
func classify(err error) *sinks.Error {
	e := &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Err: err}
	refuse := func(class sinks.Class, hint string) {
		e.Class, e.Ambiguous, e.Hint = class, false, hint
	}
	var configuration sarama.ConfigurationError
	code, answered := brokerCode(err)
	switch {
	case errors.As(err, &configuration):
		refuse(sinks.Pause, "the publisher's settings do not fit; is its largest message smaller than max_message_bytes?")
	case answered:
		switch code {
		case sarama.ErrMessageSizeTooLarge, sarama.ErrInvalidRecord, sarama.ErrInvalidMessageSize, sarama.ErrInvalidTimestamp:
			refuse(sinks.Reject, "")
		case sarama.ErrUnknownTopicOrPartition, sarama.ErrInvalidTopic:
			refuse(sinks.Pause, "create the topic, or correct its name")
		case sarama.ErrTopicAuthorizationFailed, sarama.ErrClusterAuthorizationFailed, sarama.ErrSASLAuthenticationFailed,
			sarama.ErrTransactionalIDAuthorizationFailed, sarama.ErrIllegalSASLState, sarama.ErrUnsupportedSASLMechanism:
			refuse(sinks.Pause, "check the credentials and their rights to write to the topic")
		case sarama.ErrUnsupportedVersion, sarama.ErrUnsupportedForMessageFormat, sarama.ErrInvalidRequiredAcks,
			sarama.ErrUnsupportedCompressionType, sarama.ErrPolicyViolation, sarama.ErrSecurityDisabled:
			refuse(sinks.Pause, "the broker does not support what the publisher is configured to do")
		}
	}
	return e
}

// brokerCode returns the error code of the Kafka protocol in err's chain.
func brokerCode(err error) (sarama.KError, bool) {
	var code sarama.KError
	if errors.As(err, &code) {
		return code, true
	}
	var other *kerr.Error
	if errors.As(err, &other) {
		return sarama.KError(other.Code), true
	}
	return 0, false
}
