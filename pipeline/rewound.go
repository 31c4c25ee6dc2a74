package pipeline

// onRecordsLost is called when records that were still wanted are gone.
func (st *stages) onRecordsLost(topic string, partition int32, wanted, got int64) {
	st.gauges.resets.WithLabelValues(topic).Inc()
	st.log.Error("records that were still wanted are gone from the topic", "topic", topic, "partition", partition, "wanted_offset", wanted, "going_on_at", got)
}

// onStoreRewound is called when the watermark is below what was decided once: the
// store was restored, or failed over without its last commits.
func (st *stages) onStoreRewound(_ string, partition int32, decided, watermark int64) {
	st.gauges.rereads.Inc()
	st.log.Warn("the store is behind the inbox: what it forgot is read again", "partition", partition, "decided_once_to", decided, "reading_from", watermark)
}
