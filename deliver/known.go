package deliver

import (
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
)

// known has the contents of a state sink's target: by entity the one that this process wrote last,
// under its present ownership. An entity of which another content may be on its way is not there.
type known struct {
	entities    map[string]delivered
	bytes, most int64 // most: beyond it any entity is forgotten
}

// delivered is the last change of an entity that took effect.
type delivered struct {
	owner   *core.Partition
	version change.Version
	content string
}

const (
	// knownShare is the part of Options.Memory that all services may know in.
	knownShare = 16
	// knownSize is about what an entity takes beside its name and content.
	knownSize = 128
)

func (k *known) forget(entity string) {
	if d, is := k.entities[entity]; is {
		k.bytes -= knownSize + int64(len(entity)+len(d.content))
		delete(k.entities, entity)
	}
}

// put remembers a change. The names of entities share memory with frames, and are copied.
func (k *known) put(owner *core.Partition, c *change.Change) {
	if k.entities == nil {
		k.entities = map[string]delivered{}
	}
	k.forget(c.Entity)
	k.entities[strings.Clone(c.Entity)] = delivered{owner, c.Version, string(c.Content)}
	k.bytes += knownSize + int64(len(c.Entity)+len(c.Content))
	for entity := range k.entities {
		if k.bytes <= k.most {
			break
		}
		k.forget(entity)
	}
}

// has reports whether the target has the content of a change.
func (k *known) has(i *core.Item, c *change.Change) bool {
	d, is := k.entities[i.Entity]
	// An entity that was in another partition meanwhile has versions of another generation.
	return is && d.owner == i.Assignment && d.version.Generation() == c.Version.Generation() && d.content == string(c.Content)
}
