/*
 * What a state sink has: an owner remembers the content that it delivered of an entity, and passes a
 * change of the same content without a write. One entity, whose content alternates; two processes, of
 * which each may believe that it owns the partition; a request may reach the target late, also when
 * its sender has ended. The newest change in hand replaces those before it (pace.pml), and changes may
 * pass without an attempt: overtaken, or discarded behind a hold.
 *
 * Asserted: in the end the target has the newest content, unless that was discarded.
 *
 * Targets: one that turns older versions away; -DOPEN one that does not. It may go back by a late
 * request, as it does without this rule (deliver.pml), until the next write.
 * ACTS is what the adversary may do in all: MOVE the partition, end a process, lose an answer, discard,
 * with -DRESTORE take a backup and restore it.
 *
 * Rules, each with a switch that takes it away:
 *   NO_END       only changes that came into the inbox after the takeover are remembered
 *   END_EARLY    its end is read after the takeover
 *   END_DECIDED  its end, not how far it is decided: a restored store decides again
 *   NO_LOOK      a change is handed out if the token is this process's after it was read
 *   KEEP_FAILED  an attempt makes the content unknown until it succeeds
 *   KEEP_OWNER   so does a takeover
 *   PASS_UNSAVED the position moves under the token alone, as everywhere
 */
#ifndef N
#define N 4
#endif
#ifndef ACTS
#define ACTS 3
#endif
#define bit(v)    (1 << (v))
#define has(m, v) (((m) >> (v)) & 1)
#define content(v) (1 + ((v) & 1))
#define UNREAD 15

byte inbox, W, acts = ACTS;                /* records; decided and published up to */
byte tok, pos, session;                    /* the row of the partition */
byte bTok, bPos, bW; bool backed;
byte tokens;                               /* made so far */
byte at, top; byte flying;                      /* the target's version; requests under way */
bool late;                                 /* an open target went back */
byte discarded;
byte assigned;

bool on[2], looked[2];
byte own[2], ses[2], end[2], rd[2], done[2], fly[2], known[2], early[2];
bool ended;

#define over   (W == N && pos == N && on[assigned] && tok == own[assigned] && end[assigned] != UNREAD)
#define mine(d) (tok == own[d] && session == ses[d])

inline land(v) {
  flying = flying & ~bit(v);
#ifdef OPEN
  late = v < top; at = v; if :: v > top -> top = v :: else fi
#else
  if :: v > at -> at = v :: else fi
#endif
}
inline off(d) {
  on[d] = false; looked[d] = false; own[d] = 0; ses[d] = 0; rd[d] = 0; done[d] = 0; fly[d] = 0; end[d] = 0; early[d] = 0;
#ifndef KEEP_OWNER
  known[d] = 0
#endif
}

proctype Deliver(byte d) {
  do
  :: ended -> break
#ifdef END_EARLY
  :: d_step { !on[d] && assigned == d && !early[d] -> early[d] = inbox + 1 }
  :: d_step { !on[d] && assigned == d && early[d] -> tokens++; tok = tokens; own[d] = tok; ses[d] = session; on[d] = true;
     rd[d] = pos; done[d] = pos; end[d] = early[d] - 1 }
#else
  :: d_step { !on[d] && assigned == d -> tokens++; tok = tokens; own[d] = tok; ses[d] = session; on[d] = true;
     rd[d] = pos; done[d] = pos; end[d] = UNREAD }
  :: d_step { on[d] && end[d] == UNREAD ->
#ifdef END_DECIDED
     end[d] = W
#else
     end[d] = inbox
#endif
     }
#endif
  :: d_step { on[d] && rd[d] < W && !fly[d] -> rd[d]++; looked[d] = false }
#ifdef NO_LOOK
  :: d_step { on[d] && !looked[d] -> looked[d] = true }
#else
  :: d_step { on[d] && !looked[d] && tok == own[d] -> looked[d] = true }
  :: d_step { on[d] && !looked[d] && tok != own[d] && !fly[d] -> off(d) }
#endif
#define hand(d) (on[d] && looked[d] && rd[d] > done[d] && !fly[d])
  :: d_step { hand(d) && known[d] == content(rd[d]) -> done[d] = rd[d] }
  :: d_step { hand(d) && known[d] != content(rd[d]) -> fly[d] = rd[d]; flying = flying | bit(rd[d]);
#ifndef KEEP_FAILED
     known[d] = 0
#endif
     }
  :: d_step { fly[d] && !has(flying, fly[d]) ->                           /* it landed, and the answer is here */
     done[d] = fly[d];
#ifdef NO_END
     known[d] = content(fly[d]);
#else
     known[d] = (fly[d] > end[d] -> content(fly[d]) : 0);
#endif
     fly[d] = 0 }
  :: d_step { acts && fly[d] -> acts--; fly[d] = 0 }                      /* no answer: again, or a newer one */
  :: d_step { acts && hand(d) -> acts--; done[d] = rd[d]; discarded = discarded | bit(rd[d]) }
  :: d_step { on[d] && done[d] > pos && mine(d) -> pos = done[d] }
#ifdef PASS_UNSAVED
  :: d_step { on[d] && done[d] > pos -> pos = done[d] }
#endif
  :: d_step { on[d] && assigned == d && !mine(d) && !fly[d] -> off(d) }   /* notices, now or later */
  :: d_step { acts && on[d] && !ended -> acts--; off(d) }                          /* killed: its request is under way */
  od
}

init {
  atomic { run Deliver(0); run Deliver(1) }
  do
  :: d_step { inbox < N -> inbox++ }
  :: d_step { W < inbox -> W++ }
  :: d_step { has(flying, 1) -> land(1) }
  :: d_step { has(flying, 2) -> land(2) }
  :: d_step { has(flying, 3) -> land(3) }
  :: d_step { has(flying, 4) -> land(4) }
  :: d_step { acts && assigned == 0 -> acts--; assigned = 1 }
  :: d_step { acts && assigned == 1 -> acts--; assigned = 0 }
#ifdef RESTORE
  :: d_step { acts && !backed && !ended -> acts--; backed = true; bTok = tok; bPos = pos; bW = W }
  :: d_step { acts && backed && !ended -> acts--; backed = false; tok = bTok; pos = bPos; W = bW; session++ }
#endif
  :: d_step { over && !ended -> ended = true }
  :: ended && _nr_pr == 1 -> break
  od;
  assert(content(at) == content(N) || late || has(discarded, N))
}
