/*
 * Deliver: frames in one log, positions in place of confirmations, for one
 * partition, one entity and two services A (0) and B (1). protocol.md tells
 * it in words. A decision is one step here, decide.pml tells why that may be said;
 * the log has what its owner publishes, repeats at a takeover, and a zombie sends
 * late. Contents and refusals are in refuse.pml, turns in catchup.pml.
 *
 * What is persisted is one row: a token, the session of the store's server,
 * `live` with its log offset, and per service that is behind its own two.
 * Every write swaps it whole, so a reader never sees half of it.
 *
 * Sinks: a state sink without guard; -DGUARDED one with; -DLOG a log sink.
 * ACTS is what the adversary may do in all, of these kinds:
 *   CRASH MOVE    a deliverer dies; the partition moves, the old owner goes on
 *   REPEAT        decide is taken over: its outbox is published again, a zombie's publish comes late
 *   CUT           retention takes one record, or all
 *   FAIL BOTH     B's sink goes down, or takes a change without an answer; A's as well
 *   REFUSE        a sink refuses a change: a dead letter
 *   RESTORE       backup; restore
 *   ADD REMOVE    B is activated later; B is removed
 *
 * Rules, each with a switch that takes it away:
 *   NO_TOKEN      the row is written by whoever likes
 *   NO_SESSION    a row that went back with the store is swapped under the token that it has
 *   NO_RENEW      the token stays the same from takeover to takeover
 *   RENEW_SETS    it is renewed only when a service falls behind or is live again
 *   NO_BACK       what was left out because the dam had a newer one stays so when the dam went back
 *   NO_IDLE       an owner notices that its row is gone at its next write only
 *   NO_ABOVE      positions may pass the watermark
 *   NO_POSREV     positions are written under another revision than the active one
 *   LIVE_EARLY    live again at the persisted position, not at the tail's
 *   LIVE_READ     live again when the reader is there, before the sink is
 *   MARK_FIRST    the position moves before the effect
 *   LETTER_LATE   the position passes a refused change before its dead letter is stored
 *   NO_PREV       no look at `prev`
 *   GAP_SILENT    a gap is passed, nothing is asked for
 *   GAP_NOWAIT    it is passed when the decisions were asked for, before they were made
 *   GAP_BLIND     it is called one before the log was read to its end,
 *   NO_BOX        nor to see what waits in the outbox,
 *   GAP_LATE      or the log was read first, then watermark row and outbox
 *   NO_DISCARD    an outbox row goes with the next decision only
 *   NO_ENDGAP     only a frame shows a gap, never the end of the log
 *   NO_REREAD     a takeover reads on where this process was, not from the position
 *   NO_SKIP       a frame below the position is delivered
 *   SKIP_WHOLE    a frame that reaches above the position is delivered whole
 *   NO_NEWEST     after a takeover no look at the dam (state sink without guard)
 *   NEWEST_TAKEOVER_ONLY  nor in catch-up, but for what stood in the log at the takeover
 *   EARLY         a frame is handed to the tail before its publish was acknowledged
 *   NO_REWIND     a sink that answers again joins the catch-up reader where that is
 *   NO_FUTURE     frames above the watermark count
 *   LOOK_LATE     the watermark that a frame is compared with may be older than the frame
 *   NO_REVISION   frames of a revision that was not in force in the store's history count
 *   OLD_PROCESS   a process without B takes frames that have B's changes
 *   KEEP_ENTRY    the entry of a removed service stays in the row
 *   REUSE         its number is given to another service
 */
#include "positions.pml"

proctype Deliver(byte d) {
  do
  /* Takeover: the token is swapped and the row read in one statement. */
  :: d_step { !on[d] && assigned == d -> claim(); on[d] = true; kr = s.rev; tn = s.dn; end0 = le;
     cof[A] = s.ho[A]; cof[B] = s.ho[B];
#ifdef NO_REREAD
     if :: ti -> skip :: else -> ti = max(s.doff, lo) fi;
#else
     ti = max(s.doff, lo);
#endif
     bi = ti; live[A] = !s.hn[A]; live[B] = !s.hn[B];
     done[A] = (s.hn[A] -> s.hn[A] - 1 : tn); done[B] = (s.hn[B] -> s.hn[B] - 1 : tn) }

  /* The tail reads the log, record by record; up to two frames are in hand. */
  :: d_step { on[d] && ti < lo -> ti = lo; sus = 0; look = 0; level() }
  :: d_step { here && TO(F) <= tn ->
#ifdef NO_SKIP
     m = lw(has(F, A)); if :: live[A] && m -> effect(d, A, m) :: else fi; m = 0;
#endif
     next(); level() }
#ifdef LOOK_LATE
  :: d_step { on[d] && !look && lo <= ti && ti <= le -> look = s.W + 1 }
#else
  :: d_step { here && TO(F) > tn && !look -> look = s.W + 1 }
#endif
#define judged   (here && TO(F) > tn && look)
#define counts   (!above(TO(F), look - 1) && !foreign(F))
  :: d_step { judged && !counts -> foregone = foregone | bit(ti); next(); level() }                            /* of a future that was lost */
  :: d_step { judged && counts && !mine(F) -> reset() }                         /* of a newer revision: reads the configuration again */
  :: d_step { judged && counts && mine(F) && ahead < 2 && !gapAt(tn, F) ->
     take(F, ti); next();
#ifdef MARK_FIRST
     if :: holds && tn <= s.W -> s.dn = tn; s.doff = ti :: else fi;
#endif
     level() }

  /* A suspicion: watermark row and outbox are read first, then the log to its end. */
#define gap      (judged && counts && mine(F) && ahead == 0 && gapAt(tn, F))
#ifdef GAP_LATE
  :: d_step { gap && !sus && !some(ti + 1, tn) -> sus = PV(F) }
  :: d_step { gap && sus && !boxed(tn) && (asking(PV(F)) || !held(PV(F))) -> repair(PV(F)) }
  :: d_step { on[d] && ti == le && ahead == 0 && !sus -> sus = 7 }
  :: d_step { on[d] && sus == 7 && ahead == 0 && ends > tn && !boxed(tn) -> sus = ends; if :: asking(sus) || !held(sus) -> repair(sus) :: else fi }
#else
  :: d_step { gap && !sus && !boxed(tn) -> sus = PV(F) }
  :: d_step { gap && sus && !some(ti + 1, tn) && (asking(PV(F)) || !held(PV(F))) -> repair(PV(F)) }
#ifndef NO_ENDGAP
  /* The store knows a frame behind the end of the log that waits in no outbox. */
  :: d_step { on[d] && ti == le && ahead == 0 && !sus && ends > tn && !boxed(tn) -> sus = ends }
  :: d_step { on[d] && ti == le && ahead == 0 && sus && (asking(sus) || !held(sus)) -> repair(sus) }
#endif
#endif
  :: d_step { gap && some(ti + 1, tn) -> linked(ti + 1, tn); sus = 0;           /* a later record has it: this one again after it */
     take(log[x-1], x - 1);
     x = 0; level() }
#ifdef EARLY
  :: d_step { on[d] && pubd < s.nb && ahead < 2 && PV(s.box[0]) <= tn && TO(s.box[0]) > tn -> take(s.box[0], MAXLOG); look = 0; sus = 0; level() }
#endif

  /* The position is written. */
  :: d_step { on[d] && (lowest > s.dn || lowest == s.dn && lowest == tn && ti > s.doff ||
       !live[A] && done[A] + 1 > s.hn[A] || !live[B] && done[B] + 1 > s.hn[B]) -> swap(EVERY) }
#ifndef NO_IDLE
  :: d_step { on[d] && assigned == d && !(tok[d] == s.tok && present && kr == s.rev) -> reset() }     /* an idle owner looks now and then */
#endif

  /* Catch-up: one reader for all that are behind and whose sinks answer. */
#define walks    (on[d] && walk && lo <= ci && ci < le)
  :: d_step { on[d] && walk && ci < lo -> ci = lo }
  :: d_step { walks && lost(G) -> foregone = foregone | bit(ci); ci++ }
  :: d_step { walks && !lost(G) && !mine(G) -> reset() }
  :: d_step { walks && !lost(G) && mine(G) && !((walk & 1) && done[A] < TO(G)) && !((walk & 2) && done[B] < TO(G)) -> ci++ }

  :: d_step { on[d] && assigned != d -> reset() }                               /* revoked; a zombie before that */
#ifdef CRASH
  :: d_step { may && on[d] -> did; reset(); ti = 0 }
#endif
  :: over -> break
  od
}

#define inWalk   (on[d] && !live[c] && (walk & bit(c)))
#define reading  (inWalk && lo <= ci && ci < le && !lost(G) && mine(G) && done[c] < TO(G))

inline drop() { cof[c] = ci; walk = walk & ~bit(c); if :: walk == 0 -> ci = 0 :: else fi }

/* A behind service gets frame f, record k. */
inline feed(f, k) {
  m = has(f, c) & range(done[c], TO(f));
  if
  :: m == 0 -> done[c] = TO(f)
#ifdef LOG
  :: else -> effect(d, c, lw(m)); done[c] = lw(m)
#else
  :: else -> if :: worth(hi(m), c, freshAt(k)) -> effect(d, c, hi(m)) :: else -> leave() fi; done[c] = TO(f)
#endif
  fi; m = 0
}
/* It passes a gap alone. */
inline repairOne(g) {
  g_ = g;
  if
  :: mayAsk(c, g_) -> ask(c)
  :: else -> if :: holds && g_ <= s.W -> pass(c, g_); swap(EVERY) :: else -> reset() fi
  fi;
  g_ = 0
}
/* It is live, at the tail's position. */
inline alive() { done[c] = tn; drop(); cof[c] = 0; live[c] = true; level(); swap(SETS) }

/* One service of one deliverer: its sink, when it is live and when it is behind. */
proctype Service(byte d; byte c) {
  do
  :: d_step { on[d] && lag(c) && todo(c) == 0 -> done[c] = tn; level() }
  :: d_step { on[d] && lag(c) && todo(c) && up[c] ->                            /* the oldest first */
     x = lw(todo(c)); if :: worth(x, c, fresh & bit(x - 1)) -> effect(d, c, x) :: else -> leave() fi; done[c] = x; x = 0; level() }
#ifndef LOG
  :: d_step { on[d] && lag(c) && up[c] && lw(todo(c)) != hi(todo(c)) ->         /* or the newest alone */
     x = hi(todo(c)); if :: worth(x, c, fresh & bit(x - 1)) -> effect(d, c, x) :: else -> leave() fi; done[c] = tn; x = 0; level() }
#ifdef FAIL
  :: d_step { may && on[d] && lag(c) && todo(c) && fails(c) -> did;             /* taken, no answer */
     x = hi(todo(c)); if :: worth(x, c, fresh & bit(x - 1)) -> effect(d, c, x) :: else -> leave() fi; fresh = 0; x = 0 }
#endif
#endif
#ifdef REFUSE
  :: d_step { may && on[d] && lag(c) && todo(c) && up[c] -> did; x = lw(todo(c)); letter(c, x); done[c] = x; x = 0; level() }
#endif
#ifdef LETTER_LATE
  :: d_step { on[d] && owed[c] -> s.lt[c] = s.lt[c] | owed[c]; owed[c] = 0 }
#endif

  /* It fails, hangs, or has too much in hand: it falls behind. */
#ifdef FAIL
  :: d_step { on[d] && serves(c, kr) && lag(c) && fails(c) -> cof[c] = bi; live[c] = false; level(); swap(SETS) }
#endif

  /* Its sink answers: the catch-up reader takes it along. */
  :: d_step { on[d] && serves(c, kr) && !live[c] && up[c] && !(walk & bit(c)) && done[c] < tn ->
#ifdef NO_REWIND
     if :: walk == 0 -> ci = max(cof[c], lo) :: else fi;
#else
     ci = max((walk -> min(ci, cof[c]) : cof[c]), lo);
#endif
     walk = walk | bit(c) }
  :: d_step { inWalk && !up[c] -> drop() }
  :: d_step { reading && up[c] && !gapAt(done[c], G) -> feed(G, ci) }
  :: d_step { reading && up[c] && gapAt(done[c], G) && some(ci + 1, done[c]) -> linked(ci + 1, done[c]); feed(log[x-1], x - 1); x = 0 }
  :: d_step { reading && up[c] && gapAt(done[c], G) && !boxed(done[c]) && !some(ci + 1, done[c]) && (mayAsk(c, PV(G)) || !blocks(c, PV(G))) ->
     repairOne(PV(G)) }
#ifndef NO_ENDGAP                                                               /* the log ends before the tail's position */
  :: d_step { inWalk && up[c] && ci == le && done[c] < tn && !boxed(done[c]) && (mayAsk(c, tn) || !blocks(c, tn)) -> repairOne(tn) }
#endif
  /* Live again, at the tail's position. */
#ifdef LIVE_EARLY
  :: d_step { on[d] && !live[c] && done[c] >= s.dn -> alive() }
#endif
#ifdef LIVE_READ
  :: d_step { reading && up[c] && !gapAt(done[c], G) && TO(G) == tn ->
     if :: c == B -> pb = pb | (has(G, B) & range(done[c], tn)) :: else fi; alive() }
#endif
  :: d_step { on[d] && !live[c] && done[c] == tn -> alive() }
  :: over -> break
  od
}

init {
  atomic {
    rec[A] = range(0, N); rec[B] = range(0, N);
#ifdef SPARSE                                               /* the second event changes nothing for A, or B, or both */
    if :: rec[A] = rec[A] & ~bit(1) :: skip fi;
    if :: rec[B] = rec[B] & ~bit(1) :: skip fi;
#endif
    s.rev = FIRST;
    run Decide(); run Adversary(); run Deliver(0); run Service(0, A); run Service(0, B);
#ifdef MOVE
    run Deliver(1); run Service(1, A); run Service(1, B)
#endif
  }
  (_nr_pr == 1);
  d_step {
    i = 0;
    do
    :: i < 2 ->
#ifdef LOG
       assert(!up[i] || !serves(i, s.rev) || (decided(i) & ~(seen[i] | gone[i] | s.lt[i])) == 0);
       assert(!up[i] || !serves(i, s.rev) || newest(i) == 0 || ((seen[i] | s.lt[i]) & bit(newest(i) - 1)));
#else
       assert(!up[i] || !serves(i, s.rev) || newest(i) == 0 || (s.lt[i] & bit(newest(i) - 1)) || at[i] == newest(i) || late[i] || back && at[i] > newest(i));
#endif
       i++
    :: else -> break
    od
  }
}
