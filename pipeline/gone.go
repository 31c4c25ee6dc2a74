package pipeline

import "context"

// recordsGone is told when records that were still wanted are gone.
func (p *Pipeline) recordsGone(topic string, partition int32, wanted, got int64) {
	p.gauges.resets.WithLabelValues(topic).Inc()
	p.log.Error("records that were still wanted are gone from the topic", "topic", topic, "partition", partition, "wanted_offset", wanted, "going_on_at", got)
}

// storeBehind is told when the watermark is below what was decided once: the
// store was restored, or failed over without its last commits.
func (p *Pipeline) storeBehind(_ string, partition int32, decided, watermark int64) {
	p.gauges.rereads.Inc()
	p.log.Warn("the store is behind the inbox: what it forgot is read again", "partition", partition, "decided_once_to", decided, "reading_from", watermark)
}

// sayReplaced is called when the store does not know the inbox topic: if it has
// decided what another one held, that one was replaced.
func (p *Pipeline) sayReplaced(ctx context.Context) error {
	marks, err := p.store.Watermarks(ctx)
	if err != nil || len(marks) == 0 {
		return err
	}
	p.gauges.resets.WithLabelValues(p.cfg.Kafka.Inbox.Topic).Inc()
	p.log.Error("the inbox topic is another one than before: records that only the old one held and that were not decided are lost", "topic", p.cfg.Kafka.Inbox.Topic)
	return nil
}
