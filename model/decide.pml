/*
 * Decide: two owners compete for one partition of the inbox, with one store
 * and one topic of changes per entity. docs/protocol.md tells it in words.
 *
 * The adversary is not counted: any number of crashes, zombies, commits of
 * unknown outcome, failed publishes and restores. All that makes the model
 * finite is the number of records. Every step is one atomic move, so whatever
 * stands between two steps is a point where a process may die.
 *
 * Rules, each with a switch that takes it away:
 *   NO_TOKEN     the watermark is compared by offset alone
 *   NO_SNAPSHOT  take-over reads the outbox first, the watermark later
 *   DELETE_UPTO  everything up to the newest acknowledged row is deleted
 *   NO_ORDER     a record that failed is given up, those behind it are sent
 *   NO_OUTBOX    changes are published from memory after the commit
 *   NO_RETAKE    after a commit of unknown outcome the owner goes on from memory
 */
#ifndef N
#define N 3             /* records in the inbox */
#endif
#ifndef CAP
#define CAP N           /* records that a producer holds per topic */
#endif

#define IDLE   0        /* does not own the partition */
#define READ   1        /* NO_SNAPSHOT only: has read the outbox */
#define RESEND 2        /* took over; waits until the outbox is published */
#define OWN    3
#define AGAIN  4        /* must take over again */

#define bit(i)     (1 << (i))
#define has(m, i)  (((m) >> (i)) & 1)
#define version(r) ((r) + 1)

/* The inbox: record r is about entity (ent bit r) and has content val bit r. */
byte ent, val, due;     /* due bit r: r is a change by last-seen semantics */

typedef Store {
  byte wm;              /* watermark: next record to decide */
  byte tok;             /* token of the owner */
  byte dam[2];          /* per entity: 0 nothing, else content+1 */
  byte seq;             /* outbox ids are a sequence of the database */
  byte box[N+1]         /* outbox row: bits of the records whose changes it holds */
}
Store s, old;           /* the store, and a backup of it */
bool kept;

/* What each owner keeps in memory. */
byte st[2], next[2], mine[2];
byte acked[2];          /* rows whose publish was acknowledged to this token */
typedef Rows { byte m[N+1] }
Rows rest[2];           /* records of each row that are not acknowledged yet */
bool broken[2];         /* a publish failed: nothing is handed in until mended */
chan q[4] = [CAP] of {byte, byte, bool};  /* producer o, topic t: row, record, handed in under the present token */
#define Q(o, t) q[2*(o)+(t)]

byte assigned;          /* whom the group has given the partition */
byte newest[2];         /* per topic, what a log sink that skips older versions has seen */
#ifdef DRAIN            /* progress: a counted adversary, then it must end well */
byte mischief = DRAIN;
#define may (mischief > 0)
#define did mischief--
#else
#define may true
#define did skip
#endif

/* scratch, always back at 0 */
hidden byte i, j, k, m, x;

/* A record of topic t arrives at the sink: in order, none left out. */
inline append(t, r) {
  assert(has(due, r));                     /* no change where there is none: A,A is one */
  if
  :: version(r) <= newest[t]               /* repetition */
  :: else ->
     k = newest[t];
     do
     :: k < r && !(has(due, k) && has(ent, k) == t) -> k++
     :: else -> break
     od;
     assert(k == r);                       /* lost or out of order for a log sink */
     newest[t] = version(r); k = 0
  fi
}

/* Nothing lost: what was decided is at the sink or still in the outbox. */
inline check() {
  i = 0; m = 0;
  do
  :: i <= N -> m = m | s.box[i]; i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < s.wm ->
     assert(!has(due, i) || has(m, i) || newest[has(ent, i)] >= version(i));
     i++
  :: else -> break
  od;
  i = 0; m = 0
}

/* Acknowledgements of what was handed in under an earlier token count for nothing. */
inline age(c) {
  i = len(q[c]);
  do
  :: i > 0 -> q[c]?j,k,_; q[c]!j,k,false; i--
  :: else -> break
  od;
  j = 0; k = 0
}

inline forget(o) {
  age(2*(o)); age(2*(o)+1);
  acked[o] = 0; i = 0;
  do
  :: i <= N -> rest[o].m[i] = 0; i++
  :: else -> break
  od;
  i = 0
}

inline clear(o, t) {
  do
  :: len(Q(o,t)) > 0 -> Q(o,t)?_,_,_
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

inline publish(o, id, set) {
  j = 0;
  do
  :: j < N ->
     if :: has(set, j) -> Q(o, has(ent, j))!id,j,true :: else fi;
     j++
  :: else -> break
  od;
  rest[o].m[id] = set; j = 0
}

inline readOutbox(o) {
  forget(o); i = 1;
  do
  :: i <= N -> if :: s.box[i] -> publish(o, i, s.box[i]) :: else fi; i++
  :: else -> break
  od;
  i = 0
}

inline readWatermark(o) { claim(o); next[o] = s.wm }

/* Room for everything that a take-over may hand in. */
#define room(o, n) (len(Q(o,0)) + (n) <= CAP && len(Q(o,1)) + (n) <= CAP)

inline dropAcked(o) {
#ifdef DELETE_UPTO
  x = 0; i = 1;
  do
  :: i <= N -> if :: has(acked[o], i) -> x = i :: else fi; i++
  :: else -> break
  od;
  i = 1;
  do
  :: i <= x -> s.box[i] = 0; rest[o].m[i] = 0; i++
  :: else -> break
  od;
  x = 0;
#else
  i = 1;
  do
  :: i <= N -> if :: has(acked[o], i) -> s.box[i] = 0 :: else fi; i++
  :: else -> break
  od;
#endif
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
  s.wm = s.wm + n;
#ifdef NO_OUTBOX
  x = N;
#else
  if :: m -> s.seq++; s.box[s.seq] = m :: else fi;
  x = s.seq
#endif
}

#ifdef NO_TOKEN
#define holds(o) (s.wm == next[o])
#else
#define holds(o) (s.wm == next[o] && s.tok == mine[o])
#endif

inline die(o) {
  clear(o, 0); clear(o, 1); forget(o);
  st[o] = IDLE; next[o] = 0; mine[o] = 0; broken[o] = false
}

/* The broker answers the oldest record of a topic. */
inline answered(o, t) {
  Q(o,t)?j,m,x; append(t, m);
  if
  :: x ->
     rest[o].m[j] = rest[o].m[j] & (255 - bit(m));
     if :: rest[o].m[j] == 0 -> acked[o] = acked[o] | bit(j) :: else fi
  :: else
  fi;
  j = 0; m = 0; x = 0
}

/* Or it fails; whether it was appended all the same is not known. */
inline fails(o, t, appended) {
  Q(o,t)?j,m,_;
  if :: appended -> append(t, m) :: else fi;
#ifndef NO_ORDER
  clear(o, t);
#endif
  broken[o] = true; j = 0; m = 0
}

#define mustTake(o) ((st[o] == AGAIN || st[o] == IDLE && assigned == o) && !broken[o] && room(o, N))
#define sent(o)     (rest[o].m[1] == 0 && rest[o].m[2] == 0 && (N < 3 || rest[o].m[N] == 0) && (N < 4 || rest[o].m[3] == 0))

#define quiet (mischief == 0 && s.wm == N && st[assigned] == OWN && holds(assigned) && st[1-assigned] == IDLE && \
  !broken[assigned] && !acked[assigned] && \
  len(q[0]) == 0 && len(q[1]) == 0 && len(q[2]) == 0 && len(q[3]) == 0)

proctype Owner(byte o) {
  do
  /* Take-over of a partition that was assigned, or one that still seems to be
     ours after we were fenced. Token, watermark and outbox in one snapshot. */
#ifdef NO_SNAPSHOT
  :: d_step { mustTake(o) -> readOutbox(o); st[o] = READ }
  :: d_step { st[o] == READ -> readWatermark(o); st[o] = RESEND }
#else
  :: d_step { mustTake(o) -> readWatermark(o); readOutbox(o); st[o] = RESEND }
#endif
  :: d_step { st[o] == RESEND && !broken[o] && sent(o) -> st[o] = OWN }

  /* A decision over one or two records. */
  :: atomic { st[o] == OWN && !broken[o] && holds(o) && s.wm < N && room(o, N - s.wm) ->
     x = 1;
     if :: x = 1 :: s.wm + 1 < N -> x = 2 fi;
     d_step { k = x; transact(o, k); next[o] = next[o] + k; k = 0 };
     if
     :: d_step { true -> if :: m -> publish(o, x, m) :: else fi; m = 0; x = 0; check() }
     :: d_step { may -> did;                 /* committed, the owner does not know */
#ifdef NO_RETAKE
          next[o] = s.wm; 
#else
          st[o] = AGAIN;
#endif
          m = 0; x = 0; check() }
     fi }
  :: d_step { may && st[o] == OWN && !broken[o] && s.wm < N -> did; st[o] = AGAIN } /* not committed */
  :: d_step { st[o] == OWN && !broken[o] && !holds(o) -> st[o] = AGAIN }            /* fenced */
  :: d_step { st[o] == OWN && !broken[o] && acked[o] && holds(o) -> dropAcked(o); check() }

  /* The producer, topic by topic; nothing ties their acknowledgements together. */
  :: d_step { len(Q(o,0)) > 0 -> answered(o, 0) }
  :: d_step { len(Q(o,1)) > 0 -> answered(o, 1) }
  :: d_step { may && len(Q(o,0)) > 0 -> did; fails(o, 0, false) }
  :: d_step { may && len(Q(o,0)) > 0 -> did; fails(o, 0, true) }
  :: d_step { may && len(Q(o,1)) > 0 -> did; fails(o, 1, false) }
  :: d_step { may && len(Q(o,1)) > 0 -> did; fails(o, 1, true) }
  :: d_step { broken[o] && len(Q(o,0)) > 0 -> clear(o, 0); x = 0 }          /* refused behind it */
  :: d_step { broken[o] && len(Q(o,1)) > 0 -> clear(o, 1); x = 0 }
  :: d_step { broken[o] && len(Q(o,0)) + len(Q(o,1)) == 0 ->                /* mended */
       broken[o] = false; if :: st[o] > IDLE -> st[o] = AGAIN :: else fi }

  /* Revoked. Until this step an owner that was replaced is a zombie. */
  :: d_step { assigned != o && st[o] != IDLE -> st[o] = IDLE; forget(o); next[o] = 0; mine[o] = 0 }
  :: d_step { may && (st[o] != IDLE || len(Q(o,0)) + len(Q(o,1)) > 0) -> did; die(o) }
#ifdef DRAIN
  :: quiet -> break
#endif
  od
}

inline copy(to, from) {
  to.wm = from.wm; to.tok = from.tok; to.seq = from.seq;
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
  d_step {
    i = 0;
    do
    :: i < N -> assert(!has(due, i) || newest[has(ent, i)] >= version(i)); i++
    :: else -> break
    od
  }
#endif
}
