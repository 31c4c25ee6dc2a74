package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/tidwall/gjson"
)

// customers and fields: 24 customers who see 8 fields each.
const customers = 24

var paths = []string{
	"id", "valid", "event.banana_id", "event.farm.country", "event.ripeness_level", "event.seen_at",
	"attributes.weight", "attributes.description", "attributes.certificates", "history.0.device",
	"history.3.position.lat", "history.6.grade", "tags.#", "tags.2.name", "tags.5.score", "event.lot",
}

const fields = 8

// selection returns the output names and paths of customer c.
func selection(c int) (names, selected []string) {
	for k := range fields {
		path := paths[(c*5+k*3)%len(paths)]
		names, selected = append(names, fmt.Sprintf("f%d", k)), append(selected, path)
	}
	return names, selected
}

func compileAll() ([]*projections.Projection, error) {
	var all []*projections.Projection
	for c := range customers {
		spec := projections.Spec{Customer: fmt.Sprintf("c%d", c), Name: "p"}
		names, selected := selection(c)
		for k := range names {
			spec.Fields = append(spec.Fields, projections.Field{Out: names[k], Path: selected[k]})
		}
		p, err := projections.Compile(spec)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// projector returns, for one document, what all customers see of it.
type projector struct {
	name string
	run  func(doc []byte) error
	// outputs returns the texts of the last call; nil where none are kept.
	outputs func() [][]byte
	digests bool
}

func projectors() ([]projector, error) {
	all, err := compileAll()
	if err != nil {
		return nil, err
	}
	return []projector{
		{name: "Weir, digests from the index (what a decision needs)", run: weirSum(all), digests: true},
		{name: "Weir, texts, each hashed", run: weirDigest(all), digests: true},
		weirText(all), gjsonText(false), gjsonText(true),
	}, nil
}

func weirText(all []*projections.Projection) projector {
	out := make([][]byte, len(all))
	return projector{name: "Weir, texts", run: func(doc []byte) error {
		tree, err := canonicaltree.Parse(doc)
		if err != nil {
			return err
		}
		defer tree.Release()
		for i, p := range all {
			if out[i], _, err = p.Project(out[i][:0], tree.Root()); err != nil {
				return err
			}
		}
		return nil
	}, outputs: func() [][]byte { return out }}
}

func weirSum(all []*projections.Projection) func([]byte) error {
	return func(doc []byte) error {
		tree, err := canonicaltree.Parse(doc)
		if err != nil {
			return err
		}
		defer tree.Release()
		for _, p := range all {
			if _, _, err := p.Sum(tree.Root()); err != nil {
				return err
			}
		}
		return nil
	}
}

func weirDigest(all []*projections.Projection) func([]byte) error {
	var out []byte
	return func(doc []byte) error {
		tree, err := canonicaltree.Parse(doc)
		if err != nil {
			return err
		}
		defer tree.Release()
		for _, p := range all {
			if out, _, err = p.Project(out[:0], tree.Root()); err != nil {
				return err
			}
			if _, err = canonicaltree.Sum(out, canonicaltree.Literal); err != nil {
				return err
			}
		}
		return nil
	}
}

// gjsonText looks all fields up at once and writes the output, whose members
// encoding/json sorts.
func gjsonText(digest bool) projector {
	type customer struct{ names, paths []string }
	var all []customer
	for c := range customers {
		names, selected := selection(c)
		all = append(all, customer{names, selected})
	}
	out := make([][]byte, len(all))
	name := "gjson + encoding/json, texts"
	if digest {
		name += ", each hashed"
	}
	return projector{name: name, digests: digest, run: func(doc []byte) error {
		for i, c := range all {
			members := make(map[string]json.RawMessage, len(c.names))
			for k, r := range gjson.GetManyBytes(doc, c.paths...) {
				if r.Exists() {
					members[c.names[k]] = json.RawMessage(r.Raw)
				}
			}
			var err error
			if out[i], err = json.Marshal(members); err != nil {
				return err
			}
			if digest {
				sha256.Sum256(out[i])
			}
		}
		return nil
	}, outputs: func() [][]byte { return out }}
}
