/*
 * The changes log, one owner: the owner of an inbox partition decides and delivers it.
 * A decision writes its frame into the table of the store, and hands it over in memory after
 * the commit. A lane (one service) takes a frame from memory if it follows its position, else
 * from the table. One partition, one entity, services A (0, state sink) and B (1, log sink that
 * skips known keys), two owners, N events, CTL records for decisions that a job asks for.
 *
 * A is guarded by versions; -DPLAIN: it writes whatever comes.
 * ACTS is what the adversary may do in all, of these kinds:
 *   CRASH MOVE UNKNOWN   an owner dies; the partition moves, the old one goes on; a commit without an answer
 *   RESTORE              backup; restore, also a fail-over without the last commits: both owners go on
 *   CUT                  retention drops a chunk of the table: the oldest frame, any frame (clock went back), or all
 *   RING                 memory is short: a frame is dropped from memory
 *   FAIL                 a sink fails for a change, with or without the effect: it is parked
 *
 * Rules, each with a switch that takes it away:
 *   NO_TOKEN_S    a swap of positions does not compare it
 *   TOKEN_READ    a swap reads the token and then writes, without the lock of its row
 *   TAKE_SPLIT    a takeover reads positions and rows, and writes the token after that
 *   NO_SESSION    a swap does not compare the session of the server
 *   NO_IDLE       an idle owner does not look
 *   HAND_BLIND    a frame from memory is taken without a look at what is before it
 *   KEEP_MEMORY   frames in memory, positions and rows survive a takeover by the same process
 *   POS_FIRST     the position moves before the attempt
 * KEEP_SAFE takes no rule away: the lanes go on over a takeover by the same process, if the row still
 * had its token, in the same session: nobody wrote in between.
 *   NO_ABOVE      a position may pass the watermark
 *   NO_PREV       a frame from the table is taken without a look at what is before it
 *   NO_END        only a frame shows a gap, never the end of the log
 *   END_LATE      the end is read after the table
 *   GAP_SILENT    a gap is passed without a job
 *   JOB_LATE      the job is written after the swap that passes the gap
 *   JOB_FIRST     the job ends before its requests are durable
 *   NO_NEWEST     what comes from the table is sent without a look at the dam (PLAIN)
 */
#ifndef N
#define N 2
#endif
#ifndef CTL
#define CTL 1
#endif
#ifndef ACTS
#define ACTS 2
#endif
#ifndef FAILS
#define FAILS 1
#endif
#define MAXIN (N + CTL)     /* at most 5 */
#define A 0
#define B 1
#define bit(i)     (1 << (i))
#define range(a,b) ((bit(b) - 1) & ~(bit(a) - 1))         /* versions a+1 to b: version v is bit v-1 */
#define hi(m) ((m)&16 -> 5 : ((m)&8 -> 4 : ((m)&4 -> 3 : ((m)&2 -> 2 : ((m)&1)))))
#define lw(m) ((m)&1 -> 1 : ((m)&2 -> 2 : ((m)&4 -> 3 : ((m)&8 -> 4 : ((m)&16 -> 5 : 0)))))
#define max(a,b) ((a) > (b) -> (a) : (b))

byte rec[2]; byte end = N;  /* records that change the view of each service; end of the inbox */
typedef Store {
  byte W, X;                /* watermark: decided up to, end of the last frame */
  byte ends, drop;          /* frames by their ends; those that retention took */
  byte tok;                 /* in the row of the watermark and in that of the positions */
  byte P[2], pk[2];         /* positions; parked rows */
  byte gap[2], job[2]       /* reported as lost; those that are to be decided again */
}
Store s, old; bool kept; byte ses;     /* session of the server */
byte seen; byte at, best, top; bool late, back;           /* log sink; state sink, see positions.pml */
byte assigned, acts = ACTS, left = FAILS; bool over;
typedef Owner {
  bool on, dirty; byte tok, ses, w;     /* w: decided up to, as it knows */
  byte h, ring;                         /* ends of frames that it knows; those that are in memory */
  byte pos[2], pk[2], gap[2], chg[2]    /* chg: rows that the next swap writes or removes */
#ifdef TOKEN_READ
  ; bool passed
#endif
#ifdef END_LATE
  ; bool none[2]
#endif
#ifdef JOB_LATE
  ; byte owed[2]
#endif
#ifdef TAKE_SPLIT
  ; bool half
#endif
#ifdef KEEP_SAFE
  ; byte was, wses
#endif
}
Owner o[2];
#define O o[d]
hidden byte x; byte cm, ft, cv;

#define decided(c) (rec[c] & range(0, s.W))
#define newest(c)  hi(decided(c))
#define prevOf(h,t) hi((h) & range(0, (t) - 1))
#define bound      (O.tok == s.tok && O.ses == ses)
#define may        (acts > 0)

inline check() {
  assert(s.P[A] <= s.W && s.P[B] <= s.W);
  assert(newest(A) == 0 || newest(A) > s.P[A] || top >= newest(A) || ((s.pk[A] | s.job[A]) & bit(newest(A) - 1)) || (s.job[A] == 0 && (rec[A] & range(s.W, end)) && (s.gap[A] & bit(newest(A) - 1))));
  assert((decided(B) & range(0, s.P[B]) & ~(seen | s.pk[B] | s.gap[B])) == 0)
}

inline effect(d, c, v) {
  if
  :: c == B && (seen & bit(v - 1))
  :: c == B && !(seen & bit(v - 1)) ->
     assert(!bound || back || (decided(B) & range(0, v - 1) & ~(seen | O.gap[B] | s.gap[B])) == 0);
     seen = seen | bit(v - 1)
  :: c == A ->
#ifdef PLAIN
     if
     :: bound -> assert(v >= best); best = v; late = false
     :: else -> late = v < top
     fi;
     at = v;
#else
     at = max(at, v);
#endif
     top = max(top, v)
  fi
}

inline reset() {
#if defined(KEEP_MEMORY) || defined(KEEP_SAFE)
#ifdef KEEP_SAFE
  if :: O.tok -> O.was = O.tok; O.wses = O.ses :: else fi;
#endif
  O.on = false; O.tok = 0; O.ses = 0
#else
  O.on = false; O.dirty = false; O.tok = 0; O.ses = 0; O.w = 0; O.h = 0; O.ring = 0;
  O.pos[A] = 0; O.pos[B] = 0; O.pk[A] = 0; O.pk[B] = 0; O.gap[A] = 0; O.gap[B] = 0; O.chg[A] = 0; O.chg[B] = 0
#endif
#ifdef TOKEN_READ
  ; O.passed = false
#endif
#ifdef END_LATE
  ; O.none[A] = false; O.none[B] = false
#endif
#ifdef JOB_LATE
  ; O.owed[A] = 0; O.owed[B] = 0
#endif
#ifdef TAKE_SPLIT
  ; O.half = false
#endif
}
inline die() {
  reset();
#ifdef KEEP_SAFE
  O.was = 0; O.wses = 0;
#endif
#if defined(KEEP_MEMORY) || defined(KEEP_SAFE)
  O.dirty = false; O.w = 0; O.h = 0; O.ring = 0; O.pos[A] = 0; O.pos[B] = 0; O.pk[A] = 0; O.pk[B] = 0; O.gap[A] = 0; O.gap[B] = 0; O.chg[A] = 0; O.chg[B] = 0
#endif
}
inline copy(to, from) {
  to.W = from.W; to.X = from.X; to.ends = from.ends; to.drop = from.drop; to.tok = from.tok;
  to.P[A] = from.P[A]; to.P[B] = from.P[B]; to.pk[A] = from.pk[A]; to.pk[B] = from.pk[B];
  to.gap[A] = from.gap[A]; to.gap[B] = from.gap[B]; to.job[A] = from.job[A]; to.job[B] = from.job[B]
}
inline newToken() {
  O.tok = 0; x = 1;
  do :: x == s.tok || x == old.tok || x == o[1-d].tok -> x++ :: else -> break od;
  s.tok = x; O.tok = x; O.ses = ses; x = 0
}
inline readRows() {
  O.w = s.W; O.h = s.ends;
  O.pos[A] = s.P[A]; O.pos[B] = s.P[B]; O.pk[A] = s.pk[A]; O.pk[B] = s.pk[B]; O.gap[A] = 0; O.gap[B] = 0; O.chg[A] = 0; O.chg[B] = 0
}

/* A decision of n records: compared, written and committed in one transaction. */
#define mayDecide(n) (O.on && bound && O.w == s.W && s.W + n <= end)            /* without the token: cache.pml */
inline commit(n) {
  s.W = s.W + n;
  if :: (rec[A] | rec[B]) & range(s.W - n, s.W) -> s.ends = s.ends | bit(s.W - 1); s.X = s.W :: else fi;
  check()
}
inline hand() {
  O.w = s.W;
  if :: s.X == s.W -> O.h = O.h | bit(s.W - 1); O.ring = O.ring | bit(s.W - 1) :: else fi
}

/* Swap: positions, rows, gaps and jobs in one transaction. */
#ifdef NO_TOKEN_S
#define owns true
#else
#ifdef NO_SESSION
#define owns (O.tok == s.tok)
#else
#define owns bound
#endif
#endif
#ifdef NO_ABOVE
#define holds owns
#else
#define holds (owns && O.pos[A] <= s.W && O.pos[B] <= s.W)
#endif
inline write1(c) {
  s.P[c] = O.pos[c]; s.pk[c] = s.pk[c] & ~O.chg[c] | O.pk[c] & O.chg[c]; O.chg[c] = 0;
  s.gap[c] = s.gap[c] | O.gap[c];
#ifndef GAP_SILENT
#ifdef JOB_LATE
  O.owed[c] = O.owed[c] | O.gap[c];
#else
  s.job[c] = s.job[c] | O.gap[c];
#endif
#endif
  O.gap[c] = 0
}
inline write() { write1(A); write1(B); O.dirty = false; check() }

/* A lane finds its next frame: from memory, else from the table. */
#define memFrame(c)  lw(O.ring & range(O.pos[c], MAXIN))
#ifdef HAND_BLIND
#define fromMem(c)   (O.on && memFrame(c))
#else
#define fromMem(c)   (O.on && memFrame(c) && prevOf(O.h, memFrame(c)) <= O.pos[c])
#endif
#define row_(c)      lw(s.ends & ~s.drop & range(O.pos[c], MAXIN))
#define fromTable(c) (O.on && !fromMem(c))
#ifdef NO_PREV
#define gapBefore(c) false
#else
#define gapBefore(c) (prevOf(s.ends, row_(c)) > O.pos[c])
#endif

/* Lane c has frame ft, whose changes above its position are cm. fresh: nobody had them before. */
inline lane(c, fresh) {
  if
  :: cm == 0 -> O.pos[c] = ft; O.dirty = true
  :: cm && c == B && O.pk[B] -> cv = lw(cm); O.pk[B] = O.pk[B] | bit(cv - 1); O.chg[B] = O.chg[B] | bit(cv - 1); O.pos[B] = cv; O.dirty = true          /* queues */
  :: cm && c == A && O.pk[A] -> cv = hi(cm); O.chg[A] = O.chg[A] | O.pk[A] | bit(cv - 1); O.pk[A] = bit(cv - 1); O.pos[A] = ft; O.dirty = true                   /* takes the row over */
  :: cm && !O.pk[c] ->
     if
     :: c == A -> cv = hi(cm)
     :: true -> cv = lw(cm)
     fi;
     if
#if defined(PLAIN) && !defined(NO_NEWEST)
     :: c == A && !fresh && cv < newest(A) -> O.pos[c] = cv; O.dirty = true                                     /* left out: a newer one comes */
     :: !(c == A && !fresh && cv < newest(A)) ->
#else
     :: true ->
#endif
        if
#ifndef POS_FIRST
        :: effect(d, c, cv); O.pos[c] = cv; O.dirty = true
#ifdef FAIL
        :: left -> left--; O.pk[c] = O.pk[c] | bit(cv - 1); O.chg[c] = O.chg[c] | bit(cv - 1); O.pos[c] = cv; O.dirty = true
        :: left -> left--; effect(d, c, cv); O.pk[c] = O.pk[c] | bit(cv - 1); O.chg[c] = O.chg[c] | bit(cv - 1); O.pos[c] = cv; O.dirty = true
#endif
#else
        :: owns && cv <= s.W -> s.P[c] = cv; effect(d, c, cv); O.pos[c] = cv; O.dirty = true
        :: owns && cv <= s.W && may -> acts--; s.P[c] = cv; die(); check()
        :: !(owns && cv <= s.W) -> reset()
#endif
        fi
     fi
  fi;
  cm = 0; ft = 0; cv = 0
}
/* It passes what is gone, up to g; nothing of it is in the table. */
inline pass(c, g) {
  cm = decided(c) & range(O.pos[c], g);
  x = s.ends & ~s.drop;
  do
  :: x -> assert(!bound || (rec[c] & range(max(O.pos[c], prevOf(s.ends, lw(x))), lw(x)) & range(O.pos[c], g)) == 0); x = x & ~bit(lw(x) - 1)
  :: else -> break
  od;
  O.gap[c] = O.gap[c] | (cm & ~(c == B -> seen : 0));
  O.pos[c] = g; O.dirty = true; cm = 0; x = 0
}

inline lanes(c) {
  if
  :: fromMem(c) ->
     ft = memFrame(c);
#ifdef HAND_BLIND
     cm = rec[c] & range(max(O.pos[c], prevOf(O.h, ft)), ft);
#else
     cm = rec[c] & range(O.pos[c], ft);
#endif
     lane(c, true)
  :: fromTable(c) && row_(c) && !gapBefore(c) ->
     ft = row_(c);
#ifdef NO_PREV
     cm = rec[c] & range(max(O.pos[c], prevOf(s.ends, ft)), ft);
#else
     cm = rec[c] & range(O.pos[c], ft);
#endif
     lane(c, false)
  :: fromTable(c) && row_(c) && gapBefore(c) -> pass(c, prevOf(s.ends, row_(c)))
#ifdef END_LATE
  :: fromTable(c) && !row_(c) && !O.none[c] -> O.none[c] = true
#else
#ifndef NO_END
  :: fromTable(c) && !row_(c) && s.X > O.pos[c] -> pass(c, s.X)
#endif
#endif
  fi
}
#define canLane(c) (O.on && O.gap[c] == 0 && (fromMem(c) || row_(c) || ENDS(c)))
#ifdef END_LATE
#define ENDS(c) !O.none[c]
#else
#ifdef NO_END
#define ENDS(c) false
#else
#define ENDS(c) (s.X > O.pos[c])
#endif
#endif

#ifdef JOB_LATE
#define OWED (o[assigned].owed[A] | o[assigned].owed[B])
#else
#define OWED 0
#endif
#define quiet (acts == 0 && left == 0 && s.W == end && o[assigned].on && !o[1-assigned].on && o[assigned].tok == s.tok && o[assigned].ses == ses && \
  !o[assigned].dirty && s.P[A] >= s.X && s.P[B] >= s.X && !s.pk[A] && !s.pk[B] && !s.job[A] && !s.job[B] && !OWED)

proctype Work(byte d) {
  do
#ifdef TAKE_SPLIT
  :: d_step { !O.on && !O.half && assigned == d -> readRows(); O.half = true }
  :: d_step { O.half -> newToken(); O.w = s.W; O.h = s.ends; O.half = false; O.on = true }
#else
  :: d_step { !O.on && assigned == d ->
#ifdef KEEP_SAFE
     cv = (O.was && O.was == s.tok && O.wses == ses -> 1 : 0);
#endif
     newToken(); O.on = true;
#ifdef KEEP_MEMORY
     if :: O.w == 0 && O.h == 0 -> readRows() :: else -> O.w = s.W fi
#else
#ifdef KEEP_SAFE
     if :: cv -> O.w = s.W; O.h = s.ends :: else -> readRows(); O.ring = 0; O.dirty = false fi;
     O.was = 0; O.wses = 0; cv = 0
#else
     readRows()
#endif
#endif
     }
#endif
  :: d_step { mayDecide(1) -> commit(1); hand() }
  :: d_step { mayDecide(2) -> commit(2); hand() }
  :: d_step { O.on && O.w != s.W && s.W < end -> reset() }                       /* compared: fenced */
#ifdef UNKNOWN
  :: d_step { may && mayDecide(1) -> acts--; commit(1); reset() }
#endif
#ifdef RING
  :: d_step { may && O.on && O.ring -> acts--; O.ring = O.ring & ~bit(lw(O.ring) - 1) }
  :: d_step { may && O.on && O.ring -> acts--; O.ring = O.ring & ~bit(hi(O.ring) - 1) }
#endif
  :: atomic { canLane(A) -> lanes(A) }
  :: atomic { canLane(B) -> lanes(B) }
#ifdef END_LATE
  :: d_step { O.on && O.none[A] -> O.none[A] = false; if :: s.X > O.pos[A] -> pass(A, s.X) :: else fi }
  :: d_step { O.on && O.none[B] -> O.none[B] = false; if :: s.X > O.pos[B] -> pass(B, s.X) :: else fi }
#endif
  /* a parked row is due: claimed under the token, then sent */
#ifdef PLAIN
#define worthRow (lw(O.pk[A]) >= newest(A))
#else
#define worthRow true
#endif
  :: atomic { O.on && O.pk[A] && worthRow -> if :: owns -> effect(d, A, lw(O.pk[A])); O.chg[A] = O.chg[A] | O.pk[A]; O.pk[A] = 0; O.dirty = true :: else -> reset() fi }
  :: atomic { O.on && O.pk[A] && !worthRow && newest(A) <= O.pos[A] -> O.chg[A] = O.chg[A] | O.pk[A]; O.pk[A] = 0; O.dirty = true }
  :: atomic { O.on && O.pk[B] -> if :: owns -> effect(d, B, lw(O.pk[B])); O.chg[B] = O.chg[B] | bit(lw(O.pk[B]) - 1); O.pk[B] = O.pk[B] & ~bit(lw(O.pk[B]) - 1); O.dirty = true :: else -> reset() fi }
  /* swap */
#ifdef TOKEN_READ
  :: d_step { O.on && O.dirty && !O.passed -> if :: holds -> O.passed = true :: else -> reset() fi }
  :: d_step { O.on && O.dirty && O.passed -> O.passed = false; write() }
#else
  :: d_step { O.on && O.dirty -> if :: holds -> write() :: else -> reset() fi }
#endif
#ifdef JOB_LATE
  :: d_step { O.on && (O.owed[A] || O.owed[B]) && owns -> s.job[A] = s.job[A] | O.owed[A]; s.job[B] = s.job[B] | O.owed[B]; O.owed[A] = 0; O.owed[B] = 0 }
#endif
#ifndef NO_IDLE
  :: d_step { O.on && assigned == d && !bound -> reset() }
#endif
  :: d_step { O.on && assigned != d -> reset() }
#ifdef CRASH
  :: d_step { may && O.on -> acts--; die() }
#endif
  :: over -> break
  od
}

/* The job: a request for the newest change that was lost, durable in the inbox before the job ends. */
byte asked; bool begun;
inline ask(c) {
  if
  :: (s.job[c] & bit(max(newest(c), 1) - 1)) && newest(c) && !(rec[c] & range(max(s.W, N), end)) ->
     if :: end == N || end == s.W -> end++ :: else fi;
     rec[c] = rec[c] | bit(end - 1)
  :: else
  fi
}
#define needs(c) (newest(c) && (s.job[c] & bit(newest(c) - 1)) && !(rec[c] & range(max(s.W, N), end)))
#define room (end < MAXIN || end > N && end > s.W || !needs(A) && !needs(B))
proctype Runner() {
  do
#ifdef JOB_FIRST
  :: d_step { !begun && (s.job[A] || s.job[B]) && room -> begun = true; asked = (s.job[A] & bit(max(newest(A),1) - 1) -> 1 : 0) | (s.job[B] & bit(max(newest(B),1) - 1) -> 2 : 0); s.job[A] = 0; s.job[B] = 0 }
  :: d_step { begun -> begun = false;
     if :: end == N || end == s.W -> end++ :: else fi;
     if :: asked & 1 -> rec[A] = rec[A] | bit(end - 1) :: else fi;
     if :: asked & 2 -> rec[B] = rec[B] | bit(end - 1) :: else fi;
     asked = 0 }
  :: d_step { may && begun -> acts--; begun = false; asked = 0 }
#else
  :: d_step { !begun && (s.job[A] || s.job[B]) && room -> ask(A); ask(B); begun = true }
  :: d_step { begun -> begun = false;
     if :: !(s.job[A] && (s.job[A] & bit(max(newest(A),1) - 1)) && !(rec[A] & range(s.W, end))) -> s.job[A] = 0 :: else fi;
     if :: !(s.job[B] && (s.job[B] & bit(max(newest(B),1) - 1)) && !(rec[B] & range(s.W, end))) -> s.job[B] = 0 :: else fi }
  :: d_step { may && begun -> acts--; begun = false }
#endif
  :: over -> break
  od
}

proctype Adversary() {
  do
  :: d_step { may -> acts-- }
  :: d_step { left -> left-- }
#ifdef MOVE
  :: d_step { may -> acts--; assigned = 1 - assigned }
#endif
#ifdef CUT
  :: d_step { may && (s.ends & ~s.drop) && end + 2 <= MAXIN -> acts--; s.drop = s.drop | bit(lw(s.ends & ~s.drop) - 1) }
  :: d_step { may && (s.ends & ~s.drop) && end + 2 <= MAXIN -> acts--; s.drop = s.drop | bit(hi(s.ends & ~s.drop) - 1) }
  :: d_step { may && (s.ends & ~s.drop) && end + 2 <= MAXIN -> acts--; s.drop = s.ends }
#endif
#ifdef RESTORE
  :: d_step { may && !kept && s.tok -> acts--; kept = true; copy(old, s) }
  :: d_step { may && kept -> acts--; copy(s, old); ses++; back = true; best = 0; check() }
#endif
  :: d_step { quiet -> over = true }; break
  od
}

init {
  atomic {
    rec[A] = range(0, N); rec[B] = range(0, N);
#ifdef SPARSE
    if :: rec[A] = rec[A] & ~bit(1) :: skip fi;
    if :: rec[B] = rec[B] & ~bit(0) :: skip fi;
#endif
    run Work(0); run Runner(); run Adversary();
#ifdef MOVE
    run Work(1)
#endif
  }
  (_nr_pr == 1);
  assert(newest(A) == 0 || at == newest(A) || late || (back && at > newest(A)));
  assert((decided(B) & ~(seen | s.gap[B])) == 0);
  assert(newest(B) == 0 || (seen & bit(newest(B) - 1)))
}
