package projections

import "github.com/seed-86dfc502/weir/canonicaltree"

// filter decides which documents a projection shows.
type filter struct {
	*expression
	required *requirement // nil: see requirementOf
}

func compileFilter(text string, secrets map[string][]byte) (*filter, []Fault) {
	e, required, faults := compileExpression(text, dialect{condition: true, secrets: secrets})
	if len(faults) > 0 {
		return nil, faults
	}
	return &filter{e, required}, nil
}

// match evaluates the filter.
func (f *filter) match(doc source) (bool, *FilterError) {
	if f.required != nil {
		if met := f.required.met(doc); !met || f.required.whole {
			return met, nil
		}
	}
	b := budget{maxSteps}
	result, err := f.evaluate(&b, doc, canonicaltree.Node{})
	if err != nil {
		return false, &FilterError{Line: err.line, Column: err.column, Msg: err.msg}
	}
	match, failed := truth(result)
	if failed != nil {
		return false, &FilterError{Line: 1, Column: 1, Msg: failed.Error()}
	}
	return match.(bool), nil
}
