package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wire"
)

// ServicePosition is the position of one service.
type ServicePosition struct {
	Service int32
	// Version: every change of the service in this partition whose version is below it took effect,
	// became a dead letter, or needed no delivery.
	Version change.Version
	// Mark says where on the service's target to look for changes at or above Version
	// (sinks.Recoverer); "" for a sink without marks.
	Mark string
	// Repair says which changes below Version were lost and are still to be decided again;
	// "" for none. Deliver encodes it.
	Repair string
	// Refresh is how far the entities are that are sent again although they are unchanged; ""
	// without a refresh. Deliver encodes it.
	Refresh string
	// Entities is the number of entities that the changes below Version added. It is negative
	// after lost changes at worst.
	Entities int64
}

// extra encodes the parts of a position kept in a row of its own; "" if there is nothing.
func (p *ServicePosition) extra() string {
	if p.Mark == "" && p.Refresh == "" && p.Repair == "" {
		return ""
	}
	return string(append(wire.Append(wire.Append(nil, p.Mark), p.Refresh), p.Repair...))
}

// Progress is the progress of the deliveries of one partition of the changes
// log: one row, and one for each service with a Mark, Refresh or Repair, swapped together by the partition's owner. It has a position for every
// service that the partition ever had an owner for, also for one that is not
// configured, which resumes there if it comes back.
type Progress struct {
	Partition int32
	Token     Token
	Positions []ServicePosition // ascending by service
	// Retrying are the changes of the partition that failed and are tried again, of all
	// services: dead letters of stage deliver in state LetterRetrying. TakeProgress reads
	// them by service and position, without Payload and Headers but with Size; AllProgress
	// does not read them.
	Retrying []DeadLetter
}

// ProgressSwap replaces the row of a partition, and writes its retrying changes in the same
// transaction: no other method writes them. Ended is applied first, then Retrying, then
// Letters; a swap that is not done writes none of them.
type ProgressSwap struct {
	// Token is the new one. Retrying are rows to insert or to replace, by DedupKey
	// (RetryingKey): one without Payload keeps the stored Payload and Headers.
	Progress
	// Saved are the positions under Old, as TakeProgress or the last swap left them; nil: not
	// known. A Mark, Refresh or Repair that is the same there is not written, so that a swap costs what moved.
	Saved []ServicePosition
	// Ended are the DedupKeys of retrying rows to remove: the change took effect or is
	// obsolete. A key that is not stored does no harm.
	Ended []string
	// Letters are changes that were refused or given up.
	Letters []Concluded
	Old     Token // that the row must have
}

// Concluded is a change whose delivery ended as a dead letter.
type Concluded struct {
	// Row is the DedupKey of the retrying row that becomes this letter, with its ID, Created
	// and, where the letter has none, Payload and Headers. If a letter with the same
	// DedupKey is stored, the row is removed and the letter added to that one, as AddLetters
	// does. Empty, or not stored: there was no row, the letter is added as by AddLetters.
	Row string
	DeadLetter
}

// RetryingKey is the DedupKey of the retrying row of a change: service, partition and
// position name it.
func RetryingKey(service string, partition int32, position change.Version) string {
	return "retrying/" + service + "/" + strconv.Itoa(int(partition)) + "/" + position.String()
}

// Mark is how far the decisions of one partition are.
type Mark struct {
	// Watermark is the next position to decide, in the newest generation that has
	// one for the partition.
	Watermark change.Version
	// LastTo is where the newest frame of the partition ends; 0 before the first.
	LastTo change.Version
	// Begins is where the oldest frame ends that retention left; 0 if there is none.
	Begins change.Version
}

// Tail is the changes log of a partition above a position, read in one snapshot.
type Tail struct {
	Frames []Frame        // the oldest first; Partition is not set
	LastTo change.Version // where the newest frame ends that was ever written; 0 before the first
	Owner  Token          // of the row of progress
}

// Deliveries is the store's side of deliver.
type Deliveries interface {
	// Rows reads dam rows in the order of keys; it locks nothing.
	Rows(ctx context.Context, keys []Key) ([]Row, error)
	// Marks reads how far decisions are, by partition.
	Marks(ctx context.Context) (map[int32]Mark, error)
	// Frames reads the log of a partition above a position: one frame, if there is any, and more up to
	// so many bytes. A frame that begins above the position, or none below LastTo, shows that
	// retention took others.
	Frames(ctx context.Context, partition int32, after change.Version, bytes int) (Tail, error)
	// DropFrames deletes the oldest frames: those that were written before a time, and those by
	// which the bodies of all exceed size, in bytes; 0: no bound. It returns how many.
	DropFrames(ctx context.Context, before time.Time, size int64) (int64, error)
	// TakeProgress writes token into the rows of partitions, creating them without
	// positions, and returns them as they are then. Their former owners cannot
	// swap them any more. In the order of partitions; none twice.
	TakeProgress(ctx context.Context, partitions []int32, token Token) ([]Progress, error)
	// SwapProgress replaces rows, in one durable transaction, and reports of each
	// whether it did. A row is left as it is when it has another token, when it was
	// taken during another run of the database server, or when a position in it is
	// above the watermark: in all of these the caller's knowledge is not that of the
	// store, and it has to take the partition over again. ErrSuperseded, and nothing is written, when
	// revision is not the active one. A call of unknown outcome may be repeated:
	// what did swap has the new token and reports false then.
	SwapProgress(ctx context.Context, revision int64, swaps []ProgressSwap) ([]bool, error)
	// Retrying reads retrying rows by their DedupKeys, complete, in the order of keys; it
	// leaves out keys that are not stored, and locks nothing.
	Retrying(ctx context.Context, keys []string) ([]DeadLetter, error)
	// AllProgress reads all rows, without retrying changes; it locks nothing.
	AllProgress(ctx context.Context) ([]Progress, error)
	// Moved reads up to limit entities after the given one, in ascending byte order. It
	// returns their dam rows whose version is from from up to, not including, to,
	// and the last entity that it read: "" with the last page.
	Moved(ctx context.Context, from, to change.Version, after string, limit int) (rows []Row, last string, err error)
}

// AppendPositions appends the encoding of positions that the stores keep: groups of
// services that share a version. Mark, Refresh and Repair are not in it.
func AppendPositions(dst []byte, positions []ServicePosition) []byte {
	done := make([]bool, len(positions))
	for i := range positions {
		if done[i] {
			continue
		}
		at := positions[i].Version
		dst = binary.AppendUvarint(dst, uint64(at))
		n := 0
		for j := i; j < len(positions); j++ {
			if !done[j] && positions[j].Version == at {
				n++
			}
		}
		dst = binary.AppendUvarint(dst, uint64(n))
		last := int32(0)
		for j := i; j < len(positions); j++ {
			if !done[j] && positions[j].Version == at {
				done[j] = true
				dst = binary.AppendUvarint(dst, uint64(positions[j].Service-last))
				dst = binary.AppendVarint(dst, positions[j].Entities)
				last = positions[j].Service
			}
		}
	}
	return dst
}

// DecodePositions reads what AppendPositions wrote. Its error is of class Fatal.
func DecodePositions(b []byte) ([]ServicePosition, error) {
	var out []ServicePosition
	r := wire.Reader{Rest: b}
	for len(r.Rest) > 0 && !r.Failed {
		at := change.Version(r.Uvarint())
		n, service := r.Count(), uint64(0)
		r.Failed = r.Failed || at > math.MaxInt64 || n == 0
		for ; n > 0 && !r.Failed; n-- {
			service += min(r.Uvarint(), math.MaxInt32+1)
			r.Failed = r.Failed || service > math.MaxInt32
			out = append(out, ServicePosition{Service: int32(service), Version: at, Entities: r.Varint()})
		}
	}
	slices.SortFunc(out, func(a, b ServicePosition) int { return int(a.Service) - int(b.Service) })
	for i := range out {
		r.Failed = r.Failed || i > 0 && out[i].Service == out[i-1].Service
	}
	if r.Failed {
		return nil, WithClass(errors.New("malformed positions of a progress row"), Fatal)
	}
	return out, nil
}

// MovedMarks calls write for each service whose encoded Mark, Refresh and Repair are not
// known to be stored: "" for one that has none of them any more.
func (p *ProgressSwap) MovedMarks(write func(service int32, mark string)) {
	saved := p.Saved
	for i := range p.Positions {
		at := &p.Positions[i]
		for ; len(saved) > 0 && saved[0].Service < at.Service; saved = saved[1:] {
			if saved[0].extra() != "" {
				write(saved[0].Service, "")
			}
		}
		if len(saved) > 0 && saved[0].Service == at.Service {
			if was := &saved[0]; was.Mark != at.Mark || was.Refresh != at.Refresh || was.Repair != at.Repair {
				write(at.Service, at.extra())
			}
			saved = saved[1:]
		} else {
			write(at.Service, at.extra())
		}
	}
	for i := range saved {
		if saved[i].extra() != "" {
			write(saved[i].Service, "")
		}
	}
}

// SetMark sets Mark, Refresh and Repair in the position of a service, as MovedMarks encoded them; a
// service without position has none.
func SetMark(positions []ServicePosition, service int32, mark string) {
	if i, found := slices.BinarySearchFunc(positions, service, func(p ServicePosition, n int32) int { return cmp.Compare(p.Service, n) }); found {
		r := wire.Reader{Rest: []byte(mark)}
		positions[i].Mark, positions[i].Refresh = r.Text(), r.Text()
		positions[i].Repair = string(r.Rest)
	}
}

// Top returns the highest position of positions, 0 without any.
func Top(positions []ServicePosition) change.Version {
	var top change.Version
	for i := range positions {
		top = max(top, positions[i].Version)
	}
	return top
}
