package history

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Point counts the work of a source or a service in a span of time.
type Point struct {
	In     int64 // events of a source ingested; changes of a service sent
	Held   int64 // events repeated or noise; changes held back from a service
	Out    int64 // changes of a service that took effect
	Failed int64 // events that became dead letters; failed attempts of a service
	// AgeMillis is the sum of the ages of Aged deliveries, from the event's entry.
	AgeMillis, Aged int64
	Waiting         int64 // the most that waited
}

// Age is the mean age of the deliveries, 0 without any.
func (p Point) Age() time.Duration {
	if p.Aged == 0 {
		return 0
	}
	return time.Duration(p.AgeMillis/p.Aged) * time.Millisecond
}

// add adds the counts of o, of the same span or the next one.
func (p *Point) add(o Point) {
	p.In, p.Held, p.Out, p.Failed = p.In+o.In, p.Held+o.Held, p.Out+o.Out, p.Failed+o.Failed
	p.AgeMillis, p.Aged, p.Waiting = p.AgeMillis+o.AgeMillis, p.Aged+o.Aged, max(p.Waiting, o.Waiting)
}

// MaxSeries bounds the series of an hour.
const MaxSeries = 300

// chunk is one hour: minutes by series, and marks. Minutes without activity are zero, series
// without activity are absent. A nil chunk is empty and read-only.
type chunk struct {
	series map[string]*[60]Point
	marks  []Mark
}

func newChunk() *chunk { return &chunk{series: map[string]*[60]Point{}} }

func (c *chunk) empty() bool { return len(c.series)+len(c.marks) == 0 }

func (c *chunk) at(series string, minute int64) (p Point) {
	if c != nil && c.series[series] != nil {
		p = c.series[series][minute]
	}
	return p
}

func (c *chunk) add(series string, minute int, p Point) {
	if p == (Point{}) {
		return
	}
	minutes := c.series[series]
	if minutes == nil {
		if len(c.series) >= MaxSeries {
			return
		}
		minutes = &[60]Point{}
		c.series[series] = minutes
	}
	minutes[minute].add(p)
}

func (c *chunk) mark(marks ...Mark) {
	c.marks = append(c.marks, marks[:min(len(marks), MaxMarks-len(c.marks))]...)
}

func (c *chunk) addAll(o *chunk) {
	for series, minutes := range o.series {
		for i, p := range minutes {
			c.add(series, i, p)
		}
	}
	c.mark(o.marks...)
}

const pointNumbers = 7

// stored is the JSON form of a chunk: the non-zero minutes of each series, with their numbers.
type stored struct {
	Series map[string][][pointNumbers + 1]int64
	Marks  []Mark
}

// encode writes a chunk as compressed JSON.
func (c *chunk) encode() ([]byte, error) {
	all := stored{make(map[string][][pointNumbers + 1]int64, len(c.series)), c.marks}
	for series, minutes := range c.series {
		for i, p := range minutes {
			if p != (Point{}) {
				all.Series[series] = append(all.Series[series], [...]int64{int64(i), p.In, p.Held, p.Out, p.Failed, p.AgeMillis, p.Aged, p.Waiting})
			}
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// maxChunk bounds an unpacked chunk, in bytes: MaxSeries whole hours
// are a third of it.
const maxChunk = 8 << 20

// decode reads an encoded chunk. An empty body is an empty chunk.
func decode(body []byte) (*chunk, error) {
	c := newChunk()
	if len(body) == 0 {
		return c, nil
	}
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(body)), maxChunk))
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	var all stored
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	c.mark(all.Marks...)
	for series, minutes := range all.Series {
		for _, m := range minutes {
			if m[0] >= 0 && m[0] < 60 {
				c.add(series, int(m[0]), Point{m[1], m[2], m[3], m[4], m[5], m[6], m[7]})
			}
		}
	}
	return c, nil
}
