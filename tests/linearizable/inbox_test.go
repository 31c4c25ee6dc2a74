package linearizable

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
)

const (
	service    = "acme/ripeness@sink"
	partitions = 2
	entities   = 8 // entity n is in partition n % partitions
	generation = 1
	topicID    = "inbox"
)

func entity(n int) string { return fmt.Sprint("banana-", n) }

// documents are the payloads of events, and shown the service's view of them;
// nothing shown is a retraction.
var (
	documents = []string{`{"v":0,"hidden":false}`, `{"v":1,"hidden":false}`, `{"v":2,"hidden":false}`, `{"v":0,"hidden":true}`}
	shown     = []string{`{"v":0}`, `{"v":1}`, `{"v":2}`, ``}
)

// contents of documents, computed apart from package dam.
func contents() ([]change.Content, error) {
	var all []change.Content
	for _, text := range shown {
		if text == "" {
			all = append(all, change.Retracted())
			continue
		}
		digest, err := canonicaltree.Sum([]byte(text), canonicaltree.Literal)
		if err != nil {
			return nil, err
		}
		all = append(all, change.Hashed(canonicaltree.Scheme, digest))
	}
	return all, nil
}

// plan is the configuration of all processes.
func plan(number int32, revision int64) (*decide.Plan, error) {
	m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}}})
	projection, err := projections.Compile(projections.Spec{
		Customer: "acme", Name: "ripeness", When: "doc.hidden == false", Fields: []projections.Field{{Out: "v", Path: "v"}},
	})
	if err != nil {
		return nil, err
	}
	p := &decide.Plan{
		Merge: m, Projections: []*projections.Projection{projection},
		Services:    []decide.Service{{Name: service, Number: number}},
		Fingerprint: []byte("fingerprint"), Revision: revision, MaxChange: 1 << 20,
	}
	return p, p.Prepare()
}

// topic is the inbox, one slice per partition: the same in every process
// that has the same seed. Events of the first half of the entities have neither position nor id,
// so that nothing but the watermark keeps a record from being decided twice. The others are rows of
// a table: their changes have places on two timelines, and are sent again.
func topic(seed uint64, length int) ([][]input, error) {
	all, err := contents()
	if err != nil {
		return nil, err
	}
	log := make([][]input, partitions)
	for p := range log {
		random := rand.New(rand.NewPCG(seed, uint64(p)))
		events := map[string][]change.Version{}
		changes := map[string][]input{}
		for offset := range length {
			n := p + partitions*random.IntN(entities/partitions)
			in := input{Kind: event, Entity: entity(n), Version: change.NewVersion(generation, int64(offset))}
			before := events[in.Entity]
			switch dice := random.IntN(20); {
			case len(before) == 0 || dice < 13:
				doc := random.IntN(len(documents))
				in.Doc, in.Content = doc+1, all[doc]
				if n >= entities/2 {
					in = placed(in, changes, random)
				}
				events[in.Entity] = append(before, in.Version)
			case dice < 16:
				// Mostly the last one, which the row may still have.
				in.Kind, in.Target = refuse, before[max(0, len(before)-1-random.IntN(2))]
			case dice < 18:
				in.Kind = reset
			default:
				in.Kind, in.Force = redecide, random.IntN(2) == 0
			}
			log[p] = append(log[p], in)
		}
	}
	return log, nil
}

// placed makes an event the next change of its row, or one of the last that is sent again.
func placed(in input, changes map[string][]input, random *rand.Rand) input {
	before := changes[in.Entity]
	if len(before) > 0 && random.IntN(3) == 0 {
		again := before[max(0, len(before)-1-random.IntN(3))]
		again.Version = in.Version
		return again
	}
	in.Place = 1
	if len(before) > 0 {
		last := before[len(before)-1]
		in.Timeline, in.Place = last.Timeline, last.Place+1+random.Int64N(3)
		if random.IntN(20) == 0 {
			in.Timeline = 1
		}
	}
	changes[in.Entity] = append(before, in)
	return in
}

// encode makes the record of an input, with its place in its partition.
func encode(in input) (transport.Received, error) {
	r := change.Record{Entity: in.Entity}
	switch in.Kind {
	case event:
		r.Event = &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(documents[in.Doc-1])}
		if in.Place != 0 {
			r.Event.Topic, r.Event.Offset, r.Event.Index = fmt.Sprint("timeline ", in.Timeline), in.Place/2, in.Place%2
		}
	default:
		actions := map[kind]change.Action{refuse: change.Refuse, reset: change.Reset, redecide: change.Redecide}
		r.Control = &change.Control{
			ID: in.Version.String(), Action: actions[in.Kind], Services: []string{service}, Version: in.Target, Force: in.Force,
		}
	}
	key, head, value, err := change.EncodeRecord(r)
	if err != nil {
		return transport.Received{}, err
	}
	offset := in.Version.Offset()
	return transport.Received{
		Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}},
		Offset: offset, Time: time.UnixMilli(offset).UTC(),
	}, nil
}

// frameOf makes the frame of inputs that follow one another in a partition.
func frameOf(ins []input, partition int32, assignment uint64) (*transport.Frame, error) {
	records := make([]transport.Received, len(ins))
	for i, in := range ins {
		var err error
		if records[i], err = encode(in); err != nil {
			return nil, err
		}
	}
	return transport.NewFrame(topicID, topicID, partition, assignment, records), nil
}
