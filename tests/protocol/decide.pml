/*
 * Decide: two owners compete for one partition of the inbox, with one store
 * and one log of frames. protocol.md tells it in words.
 *
 * The adversary is not counted: any number of crashes, zombies, commits of
 * unknown outcome, failed publishes and restores. All that makes the model
 * finite is the number of records. Every step is one atomic move, so whatever
 * stands between two steps is a point where a process may die.
 *
 * Rules, each with a switch that takes it away:
 *   NO_TOKEN     the watermark is compared by offset alone
 *   NO_SNAPSHOT  takeover reads the outbox first, the watermark later
 *   NO_ORDER     a record that failed is given up, those behind it are sent
 *   NO_OUTBOX    changes are published from memory after the commit
 *   NO_RETAKE    after a commit of unknown outcome the owner goes on from memory
 *   PREV_FROM    a frame names its own `from` as the end of the one before it
 */
#ifndef N
#define N 3             /* records in the inbox */
#endif
#ifndef CAP
#define CAP N           /* frames that a producer holds */
#endif

#define IDLE   0        /* does not own the partition */
#define READ   1        /* NO_SNAPSHOT only: has read the outbox */
#define OWN    2        /* what the outbox held is handed to the producer */
#define AGAIN  3        /* must take over again */

#define bit(i)     (1 << (i))
#define has(m, i)  (((m) >> (i)) & 1)
#define range(a,b) ((bit(b) - 1) & ~(bit(a) - 1))

/* A frame: inbox offsets decided, and the `to` of the frame before. */
#define frame(f,t,p) ((f) | (t) << 3 | (p) << 6)
#define FR(f) ((f) & 7)
#define TO(f) (((f) >> 3) & 7)
#define PV(f) (((f) >> 6) & 7)

/* The inbox: record r is about entity (ent bit r) and has content val bit r. */
byte ent, val, due;     /* due bit r: r is a change by last-seen semantics */

typedef Store {
  byte wm;              /* watermark: next record to decide */
  byte tok;             /* token of the owner */
  byte last;            /* `to` of the last frame */
  byte dam[2];          /* per entity: 0 nothing, else content+1 */
  byte seq;             /* outbox ids are a sequence of the database */
  short box[N+1]        /* outbox row: a frame */
}
Store s, old;           /* the store, and a backup of it */
bool kept;

/* What each owner keeps in memory. */
byte st[2], next[2], mine[2];
byte acked[2];          /* rows whose publish was acknowledged to this token */
bool broken[2];         /* a publish failed: nothing is handed in until mended */
chan q[2] = [CAP] of {byte, short, bool};  /* producer: row, frame, handed in under the present token */

byte assigned;          /* whom the group has given the partition */
byte reach;             /* the log: up to where its frames go on from one another */
#ifdef DRAIN            /* progress: a counted adversary, then it must end well */
byte mischief = DRAIN;
#define may (mischief > 0)
#define did mischief--
#else
#define may true
#define did skip
#endif

/* scratch, always back at 0 */
hidden byte i, j, k, m, x; hidden short f;

/* A frame is appended. A reader that follows `prev` finds no gap. */
inline append(g) {
  assert(PV(g) <= reach);                  /* it passed the one before it, or that is lost */
  if :: TO(g) > reach -> reach = TO(g) :: else fi
}

/* Nothing lost: what was decided is in the log or still in the outbox. */
inline check() {
  i = 0; m = 0;
  do
  :: i <= N -> m = m | range(FR(s.box[i]), TO(s.box[i])); i++
  :: else -> break
  od;
  assert((due & range(reach, s.wm) & ~m) == 0);
  i = 0; m = 0
}

/* Acknowledgements of what was handed in under an earlier token count for nothing. */
inline age(o) {
  i = len(q[o]);
  do
  :: i > 0 -> q[o]?j,f,_; q[o]!j,f,false; i--
  :: else -> break
  od;
  j = 0; f = 0
}

inline forget(o) {
  age(o); acked[o] = 0
}

inline clear(o) {
  do
  :: len(q[o]) > 0 -> q[o]?_,_,_
  :: else -> break
  od
}

/* A token that nobody knows: tokens are never used twice, so one that is
   forgotten everywhere may stand for a new one. */
inline claim(o) {
  mine[o] = 0; x = 1;
  do
  :: x == s.tok || x == old.tok || x == mine[1-o] -> x++
  :: else -> break
  od;
  s.tok = x; mine[o] = x; x = 0
}

inline publish(o, id) { q[o]!id,s.box[id],true }

inline readOutbox(o) {
  forget(o); i = 1;
  do
  :: i <= N -> if :: s.box[i] -> publish(o, i) :: else fi; i++
  :: else -> break
  od;
  i = 0
}

inline readWatermark(o) { claim(o); next[o] = s.wm }

/* Room for everything that a takeover may hand in. */
#define room(o, n) (len(q[o]) + (n) <= CAP)

inline dropAcked(o) {
  i = 1;
  do
  :: i <= N -> if :: has(acked[o], i) -> s.box[i] = 0 :: else fi; i++
  :: else -> break
  od;
  i = 0; acked[o] = 0
}

/* The decision transaction over n records: all of it or nothing. m is left
   holding the changes. */
inline transact(o, n) {
  dropAcked(o);
  i = 0; m = 0;
  do
  :: i < n ->
     j = s.wm + i;
     if
     :: s.dam[has(ent, j)] != has(val, j) + 1 ->
        s.dam[has(ent, j)] = has(val, j) + 1; m = m | bit(j)
     :: else
     fi;
     i++
  :: else -> break
  od;
  i = 0; j = 0;
  assert(m == (due & range(s.wm, s.wm + n)));    /* no change where there is none: A,A is one */
#ifdef PREV_FROM
  f = frame(s.wm, s.wm + n, s.wm);
#else
  f = frame(s.wm, s.wm + n, s.last);
#endif
  s.wm = s.wm + n;
  if
  :: m -> s.seq++; s.last = s.wm; x = s.seq;
#ifndef NO_OUTBOX
     s.box[x] = f
#endif
  :: else                                        /* no change, no frame */
  fi
}

#ifdef NO_TOKEN
#define holds(o) (s.wm == next[o])
#else
#define holds(o) (s.wm == next[o] && s.tok == mine[o])
#endif

inline die(o) {
  clear(o); forget(o);
  st[o] = IDLE; next[o] = 0; mine[o] = 0; broken[o] = false
}

/* The broker answers the oldest record. */
inline answered(o) {
  q[o]?j,f,x; append(f);
  if :: x -> acked[o] = acked[o] | bit(j) :: else fi;
  j = 0; f = 0; x = 0
}

/* Or it fails; whether it was appended all the same is not known. */
inline fails(o, appended) {
  q[o]?j,f,_;
  if :: appended -> append(f) :: else fi;
#ifndef NO_ORDER
  clear(o);
#endif
  broken[o] = true; j = 0; f = 0
}

#define mustTake(o) ((st[o] == AGAIN || st[o] == IDLE && assigned == o) && !broken[o] && room(o, N))
#define quiet (mischief == 0 && s.wm == N && st[assigned] == OWN && holds(assigned) && st[1-assigned] == IDLE && \
  !broken[assigned] && !acked[assigned] && \
  len(q[0]) == 0 && len(q[1]) == 0)

proctype Owner(byte o) {
  do
  /* Takeover of a partition that was assigned, or one that still seems to be
     ours after we were fenced. Token, watermark and outbox in one snapshot. */
#ifdef NO_SNAPSHOT
  :: d_step { mustTake(o) -> readOutbox(o); st[o] = READ }
  :: d_step { st[o] == READ -> readWatermark(o); st[o] = OWN }
#else
  :: d_step { mustTake(o) -> readWatermark(o); readOutbox(o); st[o] = OWN }
#endif

  /* A decision over one or two records. */
  :: atomic { st[o] == OWN && !broken[o] && holds(o) && s.wm < N && room(o, N - s.wm) ->
     x = 1;
     if :: x = 1 :: s.wm + 1 < N -> x = 2 fi;
     d_step { k = x; transact(o, k); next[o] = next[o] + k; k = 0 };
     if
     :: d_step { true ->
#ifdef NO_OUTBOX
          if :: m -> q[o]!x,f,true :: else fi;
#else
          if :: m -> publish(o, x) :: else fi;
#endif
          f = 0; m = 0; x = 0; check() }
     :: d_step { may -> did;                 /* committed, the owner does not know */
#ifdef NO_RETAKE
          next[o] = s.wm; 
#else
          st[o] = AGAIN;
#endif
          f = 0; m = 0; x = 0; check() }
     fi }
  :: d_step { may && st[o] == OWN && !broken[o] && s.wm < N -> did; st[o] = AGAIN } /* not committed */
  :: d_step { st[o] == OWN && !broken[o] && !holds(o) -> st[o] = AGAIN }            /* fenced */
  :: d_step { st[o] == OWN && !broken[o] && acked[o] && holds(o) -> dropAcked(o); check() }

  /* The producer. */
  :: d_step { len(q[o]) > 0 -> answered(o) }
  :: d_step { may && len(q[o]) > 0 -> did; fails(o, false) }
  :: d_step { may && len(q[o]) > 0 -> did; fails(o, true) }
  :: d_step { broken[o] && len(q[o]) > 0 -> clear(o); x = 0 }               /* refused behind it */
  :: d_step { broken[o] && len(q[o]) == 0 ->                                 /* mended */
       broken[o] = false; if :: st[o] > IDLE -> st[o] = AGAIN :: else fi }

  /* Revoked. Until this step an owner that was replaced is a zombie. */
  :: d_step { assigned != o && st[o] != IDLE -> st[o] = IDLE; forget(o); next[o] = 0; mine[o] = 0 }
  :: d_step { may && (st[o] != IDLE || len(q[o]) > 0) -> did; die(o) }
#ifdef DRAIN
  :: quiet -> break
#endif
  od
}

inline copy(to, from) {
  to.wm = from.wm; to.tok = from.tok; to.seq = from.seq; to.last = from.last;
  to.dam[0] = from.dam[0]; to.dam[1] = from.dam[1];
  i = 0;
  do :: i <= N -> to.box[i] = from.box[i]; i++ :: else -> break od;
  i = 0
}

proctype Adversary() {
  do
  :: d_step { may -> did; assigned = 1 - assigned }
#ifndef NO_RESTORE
  :: d_step { may && !kept && s.tok -> did; kept = true; copy(old, s) }  /* a backup */
  :: d_step { may && kept -> did; copy(s, old); check() }         /* back to it; log and sinks keep theirs */
#endif
#ifdef DRAIN
  :: d_step { may -> did }                                          /* there need not be any */
  :: quiet -> break
#endif
  od
}

init {
  atomic {
    /* Any inbox; the first record may as well be about entity 0, with content 0. */
    i = 1;
    do
    :: i < N -> if :: ent = ent | bit(i) :: skip fi; if :: val = val | bit(i) :: skip fi; i++
    :: else -> break
    od;
    i = 0;
    d_step {
      do
      :: i < N -> j = 0; k = 2;
         do
         :: j < i -> if :: has(ent, j) == has(ent, i) -> k = has(val, j) :: else fi; j++
         :: else -> break
         od;
         if :: k != has(val, i) -> due = due | bit(i) :: else fi;
         i++
      :: else -> break
      od;
      i = 0; j = 0; k = 0
    };
    run Owner(0); run Owner(1); run Adversary()
  }
#ifdef DRAIN
  (_nr_pr == 1);
  assert((due & range(reach, N)) == 0)
#endif
}
