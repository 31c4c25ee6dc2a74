package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/sources/postgres"
)

// sampledIDs is how many entity ids of a table are searched in another one.
const sampledIDs = 1000

// readTable is a source that reads a table of a database.
type readTable struct {
	source, url string
	entity      []string
	mount       canonicaltree.Path
	info        *postgres.TableInfo
}

// mappings compares the paths of projections with the columns of tables, and the ids of tables
// that one projection shows. A source that did not answer, or is no table, may have any path.
func (e *examination) mappings(ctx context.Context, answers map[string]bool) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	tables, listed := map[int]*readTable{}, map[string][]postgres.TableInfo{}
	for i := range e.cfg.Sources {
		s := &e.cfg.Sources[i]
		url, name, entity, is := postgres.TableOf(s.Input)
		if !is || !answers["source "+s.Name] {
			continue
		}
		if listed[url] == nil {
			listed[url], _ = postgres.ListTables(ctx, url) // what it answered is a finding already
		}
		for n := range listed[url] {
			if info := &listed[url][n]; info.Name == name {
				tables[i] = &readTable{s.Name, url, entity, s.MountPath(), info}
			}
		}
	}
	if len(tables) == 0 {
		return
	}
	compared := map[[2]string]bool{}
	for i := range e.cfg.Projections {
		p := &e.cfg.Projections[i]
		shown := e.columns(p, tables)
		for n, a := range shown {
			for _, b := range shown[:n] {
				if pair := [2]string{a.source, b.source}; !compared[pair] {
					compared[pair] = true
					e.ids(ctx, a, b)
				}
			}
		}
	}
}

// columns adds the paths of a projection that no source has, and returns the tables that some
// path can come from alone.
func (e *examination) columns(p *config.Projection, tables map[int]*readTable) (shown []*readTable) {
	for key, reads := range p.Reads() {
		for _, read := range reads {
			if i := slices.Index(read, projections.Elements); i >= 0 {
				read = read[:i]
			}
			var from []*readTable
			var near *readTable // the table in whose place the path is
			other := false
			for i := range e.cfg.Sources {
				mount, t := e.cfg.Sources[i].MountPath(), tables[i]
				depth := min(len(mount), len(read))
				switch {
				case !slices.Equal(read[:depth], mount[:depth]):
				case t == nil:
					other = true
				case depth == len(read) || slices.Contains(t.info.Columns, read[depth]):
					from = append(from, t)
				case near == nil || len(near.mount) < len(mount):
					near = t
				}
			}
			switch {
			case other:
			case len(from) == 1 && !slices.Contains(shown, from[0]):
				shown = append(shown, from[0])
			case len(from) == 0 && near != nil:
				e.add("projection "+p.Customer+"/"+p.Name, operate.LevelDegraded,
					fmt.Sprintf("%s: %s reads %s, and no table has such a column: it stays empty", p.Place(key), key, read),
					fmt.Sprintf("a column of %s: %s", near.info.Name, strings.Join(near.info.Columns, ", ")))
			}
		}
	}
	return shown
}

// ids adds that two tables which one projection shows name their entities by different ids.
func (e *examination) ids(ctx context.Context, a, b *readTable) {
	for _, t := range [][2]*readTable{{a, b}, {b, a}} {
		child, parent := t[0], t[1]
		columns, _ := child.info.Meets(parent.info)
		if len(columns) > 0 && !slices.Equal(columns, child.entity) && slices.Equal(parent.entity, parent.info.Key) {
			e.add("source "+child.source, operate.LevelDegraded,
				fmt.Sprintf("its entity is %s, and %s names %s: rows of both with the same number become one entity, whether they belong together or not",
					strings.Join(child.entity, ", "), strings.Join(columns, ", "), parent.info.Name), meetDo)
			return
		}
	}
	for _, t := range [][2]*readTable{{a, b}, {b, a}} {
		ids, err := postgres.SampleIDs(ctx, t[0].url, t[0].info.Name, t[0].entity, nil, sampledIDs)
		if err != nil || len(ids) == 0 {
			return // an empty table may get its rows later
		}
		found, err := postgres.SampleIDs(ctx, t[1].url, t[1].info.Name, t[1].entity, ids, 1)
		if err != nil || len(found) > 0 {
			return
		}
	}
	e.add("source "+a.source, operate.LevelDegraded,
		fmt.Sprintf("of up to %d ids (%s) none is one of source %s (%s): their rows never become one entity", sampledIDs, strings.Join(a.entity, ", "), b.source, strings.Join(b.entity, ", ")), meetDo)
}

const meetDo = "name the entity of both tables by the same id, as docs/databases.md shows under Several tables"
