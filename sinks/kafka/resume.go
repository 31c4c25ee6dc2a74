package kafka

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
)

// part is the sink's state of one partition of the changes log.
type part struct {
	claim  sinks.Takeover
	writer *fenced.Writer // nil until the content of the topic is known
	since  time.Time      // of writer
	// ends are where the partitions of the topic ended when writer was made, or, as known to
	// the client, before its last accepted batch, or after its last record there: another
	// process that writes for this partition has fenced writer first, so none of its records
	// is before them.
	ends []int64
	// fenced is how many partitions the topic had when writer was made: only those refuse it
	// for certain once it has a successor.
	fenced int
	// tried is the highest position that was sent, or found.
	tried change.Version
	reach change.Version // the highest position whose outcome a Write has returned
	above change.Version // see Bookmark; claim.Bookmark is the mark
	// left are records of a predecessor, or of this process, that deliver does not know of,
	// ascending by position. If more is set, further ones follow above the last.
	left []record
	more bool
	// newest position of each entity among them, by its hash, where older ones may have
	// been compacted away.
	newest map[uint64]change.Version
}

// record is one record of this service that was found in the topic.
type record struct {
	position change.Version
	key      uint64 // the first half of the idempotency key
	entity   uint64 // hash
}

// missingRights is the cluster's refusals that make delivery at least once.
type missingRights struct {
	mu     sync.Mutex
	fence  error // guarded by mu
	read   error // guarded by mu
	warned bool  // guarded by mu
}

var errStalled = errors.New("no progress")

// maxConcurrentFences is how many identities are taken over at a time.
const maxConcurrentFences = 4

// Resume implements sinks.Recoverer.
func (s *Sink) Resume(ctx context.Context, claims []sinks.Takeover) error {
	for _, c := range claims {
		if before := s.parts[c.Partition]; before != nil {
			s.remember(before, leftovers{})
		}
		s.parts[c.Partition] = &part{claim: c}
	}
	return s.opts.Try(ctx, 0, func() error {
		if err := s.resume(ctx, claims); err != nil {
			return err // not a nil of type *sinks.Error
		}
		return nil
	})
}

// resumeForWrite resumes the partitions that a Write needs: those whose last batch had no answer,
// whose writer was fenced or is old, or of which more was left than is remembered. All, if the
// topic was recreated. After an error those without a writer are not resumed.
func (s *Sink) resumeForWrite(ctx context.Context, changes []change.Change) *sinks.Error {
	lowest := map[int32]change.Version{}
	highest := map[int32]change.Version{}
	for i := range changes {
		n, at := changes[i].Partition, changes[i].Position()
		if low, ok := lowest[n]; !ok || at < low {
			lowest[n] = at
		}
		highest[n] = max(highest[n], at)
		if s.parts[n] == nil {
			s.parts[n] = &part{claim: sinks.Takeover{Partition: n}}
		}
	}
	for n, at := range highest {
		p := s.parts[n]
		if time.Since(p.since) > fenced.Lifetime {
			p.writer = nil
		}
		last := change.Version(0)
		if len(p.left) > 0 {
			last = p.left[len(p.left)-1].position
		}
		switch {
		case p.more && at > last:
			p.claim.Below, p.writer = lowest[n], nil
		case !p.more && lowest[n] > last:
			s.remember(p, leftovers{}) // all of it was passed
		}
	}
	for range 3 {
		var claims []sinks.Takeover
		for n := range highest {
			if p := s.parts[n]; p.writer == nil {
				claims = append(claims, p.claim)
			}
		}
		if len(claims) == 0 {
			return nil
		}
		if err := s.resume(ctx, claims); err != nil {
			return err
		}
	}
	return &sinks.Error{Class: sinks.Retry, Op: "resume", Err: errors.New("the topic is recreated again and again")}
}

// refreshTopic updates where the topic's partitions are.
func (s *Sink) refreshTopic(ctx context.Context) *sinks.Error {
	if s.topic == nil {
		return nil // resume looks
	}
	topic, err := s.opts.Client.Topic(ctx, s.opts.Topic, transport.MetadataMaxAge)
	if err != nil {
		e := classify(err)
		e.Ambiguous = false
		return e
	}
	s.setTopic(topic)
	return nil
}

// setTopic sets the topic's metadata. A recreated topic has to be resumed.
func (s *Sink) setTopic(topic *fenced.Topic) {
	if s.topic != nil && s.topic.ID != topic.ID {
		for _, p := range s.parts { // what they wrote is gone
			p.writer = nil
		}
	}
	s.topic = topic
}

// resume fences and reads for as long as it makes progress: there may be much to read
// after a store was restored.
func (s *Sink) resume(ctx context.Context, claims []sinks.Takeover) *sinks.Error {
	err := s.findTopic(ctx)
	if err == nil {
		err = s.withProgressTimeout(ctx, func(ctx context.Context, moved func()) error { return s.tryResume(ctx, claims, moved) })
	}
	if err == nil {
		return nil
	}
	e := classify(err)
	e.Op, e.Ambiguous = "resume", false
	return e
}

// findTopic reads where the topic's partitions are. Unlike work on the topic, a timeout
// here says something about the cluster.
func (s *Sink) findTopic(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.stallTimeout)
	defer cancel()
	topic, err := s.opts.Client.Topic(ctx, s.opts.Topic, 0)
	if err != nil {
		return err
	}
	s.setTopic(topic)
	return nil
}

// withProgressTimeout calls f, whose context ends when it has not called moved for the stall
// timeout.
func (s *Sink) withProgressTimeout(ctx context.Context, f func(ctx context.Context, moved func()) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(s.opts.stallTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	err := f(ctx, func() { stalled.Reset(s.opts.stallTimeout) })
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%w in %v: %w", errStalled, s.opts.stallTimeout, err)
	}
	return err
}

func (s *Sink) tryResume(ctx context.Context, claims []sinks.Takeover, moved func()) error {
	c, topic := s.opts.Client, s.topic
	writers := make([]*fenced.Writer, len(claims))
	var g errgroup.Group
	g.SetLimit(maxConcurrentFences)
	since := time.Now()
	for i := range claims {
		g.Go(func() (err error) {
			writers[i], err = s.fence(ctx, topic, claims[i].Partition)
			moved()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	ends, err := c.Ends(ctx, topic)
	if err != nil {
		return err
	}
	each, release := s.reserve(len(claims))
	defer release()
	left, err := s.readLeft(ctx, topic, claims, ends, each, moved)
	if err != nil {
		return err
	}
	for i, claim := range claims {
		p := s.parts[claim.Partition]
		l := &left[i]
		p.writer, p.since, p.ends, p.fenced = writers[i], since, slices.Clone(ends), len(ends)
		s.remember(p, *l)
		p.tried = max(p.tried, l.highest)
		if p.claim.Bookmark == "" {
			p.claim.Bookmark = mark{topic.ID, ends}.String()
		}
	}
	s.warnOfMissingRights()
	return nil
}

// fence ends the previous writer of a partition.
func (s *Sink) fence(ctx context.Context, topic *fenced.Topic, partition int32) (*fenced.Writer, error) {
	w, err := s.opts.Client.Fence(ctx, s.identity(partition), topic)
	if !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) && !errors.Is(err, kerr.UnsupportedVersion) {
		return w, err
	}
	s.missing.mu.Lock()
	s.missing.fence = err
	s.missing.mu.Unlock()
	return s.opts.Client.Anyone(ctx)
}

// identity is the transactional id for a partition of the changes log.
func (s *Sink) identity(partition int32) string {
	return TransactionalID(s.opts.Pipeline, s.opts.Service, s.opts.Topic, partition)
}

// TransactionalID is the id under which a pipeline's service writes the changes of a
// partition of the changes log.
func TransactionalID(pipeline, service, topic string, partition int32) string {
	return fmt.Sprintf("%s.%s.%s.%d", pipeline, service, topic, partition)
}

// warnOfMissingRights logs missing permissions once.
func (s *Sink) warnOfMissingRights() {
	s.missing.mu.Lock()
	defer s.missing.mu.Unlock()
	err := errors.Join(s.missing.fence, s.missing.read)
	if err == nil || s.missing.warned {
		return
	}
	s.missing.warned = true
	s.opts.Logger.Warn("records may come twice after a crash: the user may not fence a predecessor, or not read the topic",
		"event", "kafka_sink.rights_missing", "service", s.opts.Service, "topic", s.opts.Topic, "transactional_id", s.identity(0), "error", reason.Of(err))
}

// remember replaces the remembered records of a partition, under the budget of the client.
func (s *Sink) remember(p *part, l leftovers) {
	s.opts.Client.Remembered.Add(int64(len(l.records) - len(p.left)))
	p.left, p.more, p.newest = l.records, l.more, l.newest
}

// reserve takes room in the client's budget for the records of partitions partitions. It returns
// how many of each may be remembered, and a function that returns the room.
func (s *Sink) reserve(partitions int) (each int, release func()) {
	remembered := &s.opts.Client.Remembered
	// A quarter of the free room: other sinks resume at the same time.
	free := int(int64(s.opts.maxRemembered)-remembered.Load()) / 4
	each = min(max(free/partitions, minLeft), s.opts.maxLeft)
	n := int64(each * partitions)
	remembered.Add(n)
	return each, func() { remembered.Add(-n) }
}

// leftovers are the records that were found of one claim.
type leftovers struct {
	limit   int // of records
	records []record
	more    bool
	highest change.Version
	newest  map[uint64]change.Version
}

func (f *leftovers) add(r record) {
	f.highest = max(f.highest, r.position)
	f.records = append(f.records, r)
	if len(f.records) >= 2*f.limit {
		f.cut()
	}
}

// cut keeps the lowest records, up to the limit.
func (f *leftovers) cut() {
	slices.SortFunc(f.records, func(a, b record) int { return cmp.Compare(a.position, b.position) })
	if len(f.records) > f.limit {
		f.records, f.more = slices.Clip(f.records[:f.limit]), true
	}
}

// readLeft reads this service's records of the claimed partitions from the topic, from
// their marks to the ends.
func (s *Sink) readLeft(ctx context.Context, topic *fenced.Topic, claims []sinks.Takeover, ends []int64, each int, moved func()) ([]leftovers, error) {
	all := make([]leftovers, len(claims))
	by := make(map[int32]int, len(claims))
	from := slices.Clone(ends)
	for i, claim := range claims {
		by[claim.Partition], all[i].limit = i, each
		m, ok := parseMark(claim.Bookmark)
		if !ok {
			continue
		}
		for p := range from {
			switch {
			case m.topic != topic.ID || p >= len(m.ends):
				from[p] = 0 // another topic, or a partition that was added
			default:
				from[p] = min(from[p], m.ends[p])
			}
		}
	}
	gaps, err := s.opts.Client.Read(ctx, topic, from, ends, func(records []*kgo.Record) {
		moved()
		for _, r := range records {
			rec, partition, ok := s.parseOwn(r)
			if !ok {
				continue
			}
			if i, claimed := by[partition]; claimed && rec.position >= claims[i].Below {
				all[i].add(rec)
			}
		}
	})
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		s.missing.mu.Lock()
		s.missing.read = err
		s.missing.mu.Unlock()
		return make([]leftovers, len(claims)), nil
	}
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i].cut()
		if slices.Contains(gaps, true) {
			all[i].newest = map[uint64]change.Version{}
			for _, r := range all[i].records {
				all[i].newest[r.entity] = max(all[i].newest[r.entity], r.position)
			}
		}
	}
	return all, nil
}

// parseOwn reads the headers of a record; ok is false if it is not this service's of this
// pipeline.
func (s *Sink) parseOwn(r *kgo.Record) (rec record, partition int32, ok bool) {
	partition = -1
	var service, pipeline bool
	var position uint64
	for _, h := range r.Headers {
		var err error
		switch h.Key {
		case ServiceHeader:
			service = string(h.Value) == s.opts.Service
		case PipelineHeader:
			pipeline = string(h.Value) == s.opts.Pipeline
		case PartitionHeader:
			var n int64
			n, err = strconv.ParseInt(string(h.Value), 10, 32)
			partition = int32(n)
		case VersionHeader:
			if position == 0 {
				position, err = strconv.ParseUint(string(h.Value), 10, 64)
			}
		case PositionHeader:
			position, err = strconv.ParseUint(string(h.Value), 10, 64)
		case KeyHeader:
			rec.key = keyHash(string(h.Value))
		}
		if err != nil {
			return record{}, 0, false
		}
	}
	rec.position, rec.entity = change.Version(position), entityHash(string(r.Key))
	return rec, partition, service && pipeline && partition >= 0 && position != 0
}

func keyHash(key string) uint64 {
	var b [8]byte
	if len(key) < 2*len(b) {
		return 0
	}
	if _, err := hex.Decode(b[:], []byte(key[:2*len(b)])); err != nil {
		return 0
	}
	return binary.BigEndian.Uint64(b[:])
}

func entityHash(entity string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(entity)) // it returns no error
	return h.Sum64()
}

// contains reports whether a change is in the topic already.
func (p *part) contains(c *change.Change) bool {
	at := c.Position()
	i, _ := slices.BinarySearchFunc(p.left, at, func(r record, at change.Version) int { return cmp.Compare(r.position, at) })
	key := keyHash(c.Key)
	for ; i < len(p.left) && p.left[i].position == at; i++ {
		if p.left[i].key == key {
			return true
		}
	}
	// A compacted record made room for a newer one of its entity.
	return c.Resent == 0 && p.newest != nil && p.newest[entityHash(c.Entity)] > at
}

// acknowledge records that a batch of p, which ends before end, was acknowledged. known are
// the ends that were known before it was sent.
func (p *part) acknowledge(known []int64, partition int32, end int64) {
	if int(partition) < p.fenced {
		p.ends = fenced.Raise(p.ends, known)
	}
	p.ends = append(p.ends, make([]int64, max(0, int(partition)+1-len(p.ends)))...)
	p.ends[partition] = max(p.ends[partition], end)
}

// advanceMarks advances the marks at the end of a Write, where everything was answered.
// They stay before records whose outcome deliver does not have yet: the next owner must
// find those again.
func (s *Sink) advanceMarks(changes []change.Change, failed map[int]*sinks.Error) {
	for i := range changes {
		if failed[i] == nil {
			p := s.parts[changes[i].Partition]
			p.reach = max(p.reach, changes[i].Position())
		}
	}
	for _, p := range s.parts {
		if p.writer == nil || p.more || p.tried > p.reach {
			continue // something may be under way, or is still to be found
		}
		p.claim.Bookmark, p.above = mark{s.topic.ID, p.ends}.String(), p.tried
	}
}

// Bookmark implements sinks.Recoverer.
func (s *Sink) Bookmark(partition int32) (string, change.Version) {
	p := s.parts[partition]
	if p == nil {
		return "", 0
	}
	return p.claim.Bookmark, p.above
}

// mark is where a topic ended.
type mark struct {
	topic [16]byte
	ends  []int64
}

// String is the form that is saved.
func (m mark) String() string {
	b := slices.Clone(m.topic[:])
	for _, end := range m.ends {
		b = binary.AppendUvarint(b, uint64(end))
	}
	return string(b)
}

func parseMark(s string) (m mark, ok bool) {
	b := []byte(s)
	if len(b) < len(m.topic) {
		return mark{}, false
	}
	b = b[copy(m.topic[:], b):]
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > 1<<62 {
			return mark{}, false
		}
		m.ends, b = append(m.ends, int64(v)), b[n:]
	}
	return m, true
}
