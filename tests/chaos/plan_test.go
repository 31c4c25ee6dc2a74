//go:build verify

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// steps of load in one round.
const steps = 60

// Kinds of faults. Those of processes are done in one go; the others hold for
// some steps.
const (
	killProcess = "kill -9 process"
	zombie      = "pause process past its session"
	rolling     = "rolling restart"
	join        = "a third process joins and leaves"
	killServer  = "kill -9"
	quitServer  = "immediate shutdown of"
	flush       = "FLUSHALL of"
	cutNet      = "cut"
	delayNet    = "delay"
	slowNet     = "throttle"
	halfOpenNet = "half-open connections to"
)

// The servers that Weir talks to. The webhook is the test's own.
const (
	storeServer  = "store"
	targetServer = "target"
	kafkaServer  = "kafka"
	valkeyServer = "valkey"
	clickServer  = "clickhouse"
	hookServer   = "webhook"
	shopServer   = "shop"
)

func networks() []string {
	return []string{storeServer, targetServer, kafkaServer, valkeyServer, clickServer, hookServer, shopServer}
}

// fault is one line of a plan.
type fault struct {
	kind   string
	target string // server, or a process as its number
	at     int    // step of the round at which it begins
	until  int    // step at which it ends; faults of processes and a flush have no length
}

func (f fault) String() string {
	s := fmt.Sprintf("%d: %s", f.at, strings.TrimSpace(f.kind+" "+f.target))
	if f.until > f.at {
		s = fmt.Sprintf("%d-%s", f.at, strings.Replace(s, fmt.Sprint(f.at), fmt.Sprint(f.until), 1))
	}
	return s
}

// plan draws the faults of each round. Six rounds have
// every kind; faults of the network go round all their targets. No two faults of a
// round have the same target, so that each can be ended for itself.
func plan(seed uint64, rounds int) [][]fault {
	r := rand.New(rand.NewPCG(seed, 0))
	targets := networks()
	r.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	var deck []fault
	decks := 0
	all := make([][]fault, rounds)
	for i := range all {
		for n := 0; n < 3; n++ {
			if len(deck) < len(networks()) {
				deck = append(deck, newDeck(r, targets, decks)...)
				decks++
			}
			at := slices.IndexFunc(deck, func(f fault) bool {
				return !slices.ContainsFunc(all[i], func(g fault) bool { return g.target != "" && g.target == f.target })
			})
			if at < 0 {
				break
			}
			f := deck[at]
			deck = slices.Delete(deck, at, at+1)
			f.at = 1 + r.IntN(steps/2)
			f.until = f.at + 5 + r.IntN(steps/2-5)
			switch f.kind {
			case killProcess, zombie, rolling, join, flush:
				f.until = f.at
			}
			all[i] = append(all[i], f)
		}
		slices.SortStableFunc(all[i], func(a, b fault) int { return a.at - b.at })
	}
	return all
}

// newDeck has every kind of fault once; those of the network have targets of
// their own, which change with the number of the deck.
func newDeck(r *rand.Rand, targets []string, n int) []fault {
	deck := []fault{
		{kind: killProcess, target: fmt.Sprint(r.IntN(2))}, {kind: zombie, target: fmt.Sprint(r.IntN(2))}, {kind: rolling}, {kind: join},
		{kind: quitServer, target: storeServer}, {kind: quitServer, target: targetServer}, {kind: quitServer, target: shopServer},
		{kind: killServer, target: kafkaServer}, {kind: killServer, target: clickServer},
		{kind: killServer, target: valkeyServer}, {kind: flush, target: valkeyServer},
	}
	for i, kind := range []string{cutNet, delayNet, slowNet, halfOpenNet} {
		deck = append(deck, fault{kind: kind, target: targets[(n+i)%len(targets)]})
	}
	r.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}
