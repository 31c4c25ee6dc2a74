package fenced

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/wait"
)

const (
	fetchBytes = 4 << 20
	fetchWait  = 100 * time.Millisecond
)

// Read hands the records of t from the offsets in from up to, not including, those in to, to f as
// they come, in order within a partition; none where only markers are. Records of
// transactions count, however these ended. Expired records and offsets above the end of a
// partition are skipped. It returns which partitions had gaps, as left by compaction, where
// records may be missing.
func (c *Client) Read(ctx context.Context, t *Topic, from, to []int64, f func([]*kgo.Record)) (gaps []bool, err error) {
	next := make([]int64, t.Partitions())
	gaps = make([]bool, t.Partitions())
	copy(next, from)
	for {
		by := map[int32]*kmsg.FetchRequest{}
		for p := range next {
			if p >= len(to) || next[p] >= to[p] {
				continue
			}
			l := t.leaders[p]
			req := by[l]
			if req == nil {
				req = newFetch(t)
				by[l] = req
			}
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = int32(p), next[p], fetchBytes
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, rp)
		}
		if len(by) == 0 {
			return gaps, nil
		}
		trouble := error(nil)
		for l, req := range by {
			if err := c.fetch(ctx, t, l, req, next, to, gaps, f); err != nil {
				trouble = err
			}
		}
		if trouble == nil {
			continue
		}
		if errors.Is(trouble, kerr.TopicAuthorizationFailed) || !wait.Sleep(ctx, firstPause) {
			return nil, fmt.Errorf("read topic %s: %w", t.Name, trouble)
		}
		now, err := c.Topic(ctx, t.Name, 0)
		if err != nil || now.ID != t.ID || now.Partitions() < t.Partitions() {
			return nil, fmt.Errorf("read topic %s: %w", t.Name, errors.Join(trouble, err))
		}
		t = &Topic{Name: t.Name, ID: t.ID, leaders: now.leaders[:len(next)]}
	}
}

func newFetch(t *Topic) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch = -1, -1 // a consumer, without a session
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(fetchWait.Milliseconds()), 1, 2*fetchBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	req.Topics = append(req.Topics, rt)
	return req
}

func (c *Client) fetch(ctx context.Context, t *Topic, leader int32, req *kmsg.FetchRequest, next, to []int64, gaps []bool, f func([]*kgo.Record)) error {
	if leader < 0 {
		return kerr.LeaderNotAvailable
	}
	kresp, err := c.cl.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			p := int(rp.Partition)
			if p >= len(next) {
				continue
			}
			err := kerr.ErrorForCode(rp.ErrorCode)
			switch {
			case errors.Is(err, kerr.OffsetOutOfRange):
				// Retention deleted it, or this is another, shorter log.
				start, err := c.start(ctx, t)
				if err != nil {
					return err
				}
				if start[p] <= next[p] { // it ends before
					next[p] = to[p]
				}
				next[p] = max(next[p], start[p])
				continue
			case err != nil:
				return err
			}
			found, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
				KeepControlRecords: true, Offset: next[p], Topic: t.Name, Partition: rp.Partition,
			}, rp, decompressor, nil)
			if found.Err != nil {
				return found.Err
			}
			before, records := next[p], found.Records[:0]
			for _, r := range found.Records {
				if r.Offset < next[p] || r.Offset >= to[p] {
					continue
				}
				gaps[p] = gaps[p] || r.Offset > next[p]
				next[p] = r.Offset + 1
				if !r.Attrs.IsControl() {
					records = append(records, r)
				}
			}
			if after > next[p] {
				gaps[p] = gaps[p] || next[p] < to[p]
				next[p] = after
			}
			if next[p] > before {
				f(records)
			}
		}
	}
	return nil
}

var decompressor = kgo.DefaultDecompressor()

func (c *Client) start(ctx context.Context, t *Topic) ([]int64, error) {
	return offsets(ctx, t, c.adm.ListStartOffsets)
}
