package pipeline

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/stretchr/testify/require"
)

// endedSubscriber is a subscription that ends at once, as one whose group fails does.
type endedSubscriber struct{}

func (endedSubscriber) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message)
	close(messages)
	return messages, nil
}

func (endedSubscriber) Close() error { return nil }

// A router that ends while it starts has started: why its subscription ended is the
// group's to say, and the caller asks it only about a router that it has.
func TestARouterThatEndsAtOnceHasStarted(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	for range 300 {
		r, err := p.work.startRouter("decide", []route{{name: "decide", topic: "t", subscriber: endedSubscriber{}, handle: func(*message.Message) error { return nil }}})
		require.NoError(t, err)
		require.ErrorContains(t, <-r.failed, "the router ended by itself")
		require.NoError(t, r.close())
	}
}

// onceSubscriber has one message.
type onceSubscriber struct{ messages chan *message.Message }

func (s onceSubscriber) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return s.messages, nil
}

func (s onceSubscriber) Close() error {
	close(s.messages)
	return nil
}

// A panic is redelivered, logged with its stack and counted as a failure: the order of the middleware.
func TestAPanicIsAFailureOfItsMessage(t *testing.T) {
	var said bytes.Buffer
	reg := prometheus.NewRegistry()
	o := &stageOptions{cfg: &config.Config{}, log: slog.New(slog.NewTextHandler(&said, nil)), timed: newGauges(reg, nil).timed}
	m, messages := message.NewMessage("1", nil), make(chan *message.Message, 1)
	messages <- m
	r, err := o.startRouter("decide", []route{{name: "decide", topic: "t", subscriber: onceSubscriber{messages}, handle: func(*message.Message) error { panic("a bug") }}})
	require.NoError(t, err)
	<-m.Nacked()
	require.NoError(t, r.close())
	require.Contains(t, said.String(), "handler.panicked")
	require.Contains(t, said.String(), "router_test.go")
	metrics, err := reg.Gather()
	require.NoError(t, err)
	i := slices.IndexFunc(metrics, func(f *dto.MetricFamily) bool { return f.GetName() == "weir_router_handler_execution_time_seconds" })
	require.GreaterOrEqual(t, i, 0)
	for _, l := range metrics[i].GetMetric()[0].GetLabel() {
		require.Equal(t, map[string]string{"handler_name": "decide", "success": "false"}[l.GetName()], l.GetValue())
	}
}

type failedGroup struct{ err error }

func (g failedGroup) Err() error { return g.err }

// Whichever of them was seen first: a stage that is to start again says so, and a group why.
func TestAllThatEndedAStageIsNamed(t *testing.T) {
	router, group := errors.New("the router ended by itself"), errors.New("the group was fenced")
	stage := make(chan error, 1)
	require.EqualError(t, causes(router, stage, failedGroup{}), router.Error())
	require.NoError(t, causes(nil, stage, failedGroup{}))
	stage <- deliver.ErrLost
	err := causes(router, stage, failedGroup{group})
	for _, each := range []error{router, group, deliver.ErrLost} {
		require.ErrorIs(t, err, each)
	}
}
