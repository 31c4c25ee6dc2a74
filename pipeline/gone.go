package pipeline

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
