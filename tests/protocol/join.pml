/*
 * Two services A and B of one partition that fall behind and join the tail again,
 * each with a position of its own in a log that repeats frames, cuts them into PARTS
 * records (A's change is in the first part of each, B's in the last) and loses some.
 * One reader feeds both while they are behind: it reads for the one that is furthest
 * back and has room, and hands a record also to the other if that is there. A tail that
 * finds a gap passes it at once: the live services that lack it fall behind. The reader
 * searches the gap in the outbox and in the log to its end, and reports as lost what
 * neither has, for a repair (repair.pml). The search is one step here; the order of its
 * reads is in deliver.pml. Crashes are in parts.pml, decisions, restores and the row in
 * deliver.pml. ACTS is what may happen in all, of these kinds:
 *   REPEAT  decide is taken over: its outbox is published again, a zombie publishes late
 *   CUT     retention takes a record
 *   FALL    a service falls behind, and what it has in hand is dropped
 * With ALONE there are no other services, and the tail waits while both are behind.
 *
 * Rules, each with a switch that takes it away:
 *   GAP_LIVE    the live services that lack a gap that the tail passes fall behind
 *   LATER_COPY  who is behind and had no room for a frame gets a later copy of it
 *   JOIN_INSIDE a service that has all before a cut frame joins a tail inside that frame
 *   JOIN_AT_FED one that is behind looks for what is gone up to where the tail's frame begins
 *   PART_OWED   one that was ahead of the tail and falls behind waits for parts of a frame that it has
 */
#ifndef K
#define K 3
#endif
#ifndef PARTS
#define PARTS 1
#endif
#ifndef ACTS
#define ACTS 2
#endif
#define A 0
#define B 1
#define TAIL 2
byte fed[3], part[3], to[3], nxt[3], fst[3];    /* frames handed on; inside a cut frame: the next part, where it ends, its first record; next of the log */
bool live[2];
byte hand[2], start[2];                 /* record + 1 that the service has in hand; where to begin again for it */
byte got[2], lost[2];                   /* bits of frames; lost are reported, for a repair */
hidden byte i, j, n, x, r;
#define quiet (acts == 0 && published && nxt[TAIL] == le && fed[TAIL] == K && live[A] && live[B] && hand[A] == 0 && hand[B] == 0)
#include "publish.pml"

#define range(a,b) ((a) < (b) -> (bit(b) - 1) & ~(bit(a) - 1) : 0)
#define max(a,b) ((a) > (b) -> (a) : (b))
#define has(c,q) (PT(q) == ((c) == A -> 0 : PARTS - 1))
#define repeats(f,q) (FR(q) < fed[f] || PT(q) && (PT(q) != part[f] || FR(q) + 1 != to[f]) || !PT(q) && part[f] && FR(q) + 1 == to[f])
#define gapAt(f,q) (!repeats(f, q) && !PT(q) && FR(q) > fed[f])
#define follows(f,q) (!repeats(f, q) && (PT(q) || FR(q) <= fed[f]))
#define offset(f) (part[f] -> fst[f] : nxt[f])
#define boxed(f) (box <= fed[f]*PARTS + part[f])     /* the outbox has what goes on from there: it comes */
#define border (part[TAIL] -> to[TAIL] : fed[TAIL])  /* where one may join the tail */
#ifdef JOIN_INSIDE
#define reaches(c) (part[c] == 0 && fed[c] >= fed[TAIL])
#else
#define reaches(c) (part[c] == 0 && fed[c] >= border)
#endif
#ifdef JOIN_AT_FED
#define goalOf fed[TAIL]
#else
#define goalOf border
#endif
#ifdef ALONE
#define somebody (live[A] || live[B])
#else
#define somebody true
#endif
#define room(c) (!live[c] && hand[c] == 0)

inline set(f, q, o) { fed[f] = q; part[f] = 0; to[f] = 0; fst[f] = 0; nxt[f] = o }

/* A record that follows was handed on. x: the record to begin again at. */
inline pass(f, q, o) {
  if :: PT(q) == 0 -> fst[f] = o :: else fi;
  x = fst[f]; nxt[f] = o + 1;
  if
  :: PT(q) == PARTS - 1 -> fed[f] = FR(q) + 1; part[f] = 0; to[f] = 0; fst[f] = 0
  :: else -> part[f] = PT(q) + 1; to[f] = FR(q) + 1
  fi
}
inline give(c, q) { assert(hand[c] == 0); hand[c] = q + 1; start[c] = x }

/* Does the log go on for f behind a record? */
inline later(f, o) {
  j = max(o, lo);
  do :: j < le && !follows(f, log[j]) -> j++ :: else -> break od
}

/* c falls behind where the tail is, or where it is ahead of the tail. */
inline fall(c) {
  x = fed[c];
  fed[c] = max(fed[TAIL], x); part[c] = part[TAIL]; to[c] = to[TAIL]; fst[c] = fst[TAIL]; nxt[c] = nxt[TAIL]; x = 0;
#ifndef PART_OWED
  if :: to[c] <= fed[c] -> part[c] = 0; to[c] = 0; fst[c] = 0 :: else fi;
#endif
  live[c] = false
}

/* The tail passes what is missing before frame g, and goes on at record o. */
inline skipTo(g, o) {
#ifndef GAP_LIVE
  if :: live[A] && max(fed[TAIL], fed[A]) < g -> fall(A) :: else fi;
  if :: live[B] && max(fed[TAIL], fed[B]) < g -> fall(B) :: else fi;
#endif
  set(TAIL, g, o)
}

/* What c lacks up to g is lost: the log has nowhere all of it. */
inline lose(c, g, o) {
  i = fed[c];
  do
  :: i < g ->
     j = lo; n = 0;
     do :: j < le -> if :: log[j] == i*PARTS + n -> n++; assert(n < PARTS) :: else fi; j++ :: else -> break od;
     i++
  :: else -> break
  od; i = 0; j = 0; n = 0;
  lost[c] = lost[c] | range(fed[c], g); set(c, g, o)
}

/* Below a position all took effect, or was reported as lost. */
inline honest(c) {
  x = (hand[c] -> FR(hand[c] - 1) : (live[c] -> max(fed[TAIL], fed[c]) : fed[c]));
  assert((range(0, x) & ~(got[c] | lost[c])) == 0); x = 0
}

active proctype Tail() {
  do
  :: d_step { nxt[TAIL] < lo -> nxt[TAIL] = lo }
#define reads (lo <= nxt[TAIL] && nxt[TAIL] < le)
#define T log[nxt[TAIL]]
#define wants(c) (live[c] && has(c, T) && FR(T) + 1 > fed[c])
  :: d_step { reads && repeats(TAIL, T) -> nxt[TAIL]++ }
  :: d_step { reads && follows(TAIL, T) && somebody && !(wants(A) && hand[A]) && !(wants(B) && hand[B]) ->
     r = T; n = wants(A) | wants(B) << 1;
     pass(TAIL, r, nxt[TAIL]);
     if :: n & 1 -> give(A, r) :: else fi;
     if :: n & 2 -> give(B, r) :: else fi;
     n = 0; r = 0; x = 0 }
  :: d_step { reads && gapAt(TAIL, T) -> r = FR(T); skipTo(r, nxt[TAIL]); r = 0; honest(A); honest(B) }
  :: d_step { nxt[TAIL] == le && box == ALL && fed[TAIL] < K -> skipTo(K, le); honest(A); honest(B) }
  :: d_step { quiet -> honest(A); honest(B) }; break
  od
}

/* The reader hands record r at o to service c. */
inline offer(c, o) {
  if
  :: repeats(c, r) -> nxt[c] = o + 1
  :: follows(c, r) && hand[c] == 0 -> n = FR(r) + 1 > fed[c]; pass(c, r, o); if :: n && has(c, r) -> give(c, r) :: else fi; n = 0; x = 0
  :: else
  fi
}
#ifdef LATER_COPY
#define there(c,o) (!live[c] && nxt[c] <= (o) && offset(c) <= (o))
#else
#define there(c,o) (!live[c] && nxt[c] == (o))
#endif
#define low(c) (room(c) && !reaches(c) && (!room(1-c) || reaches(1-c) || offset(c) <= offset(1-c)))

inline readFor(c) {
  do
  :: d_step { !live[c] && reaches(c) -> live[c] = true }
  :: d_step { low(c) && nxt[c] < lo -> nxt[c] = lo }
  :: d_step { low(c) && lo <= nxt[c] && nxt[c] < le && !gapAt(c, log[nxt[c]]) ->
     j = nxt[c]; r = log[j];
     offer(c, j);
     if :: there(1-c, j) -> offer(1-c, j) :: else fi;
     j = 0; r = 0 }
     /* a search: the outbox, then the log to its end */
  :: d_step { low(c) && lo <= nxt[c] && nxt[c] < le && gapAt(c, log[nxt[c]]) && !boxed(c) ->
     later(c, nxt[c] + 1);
     if :: j < le -> nxt[c]++ :: else -> r = FR(log[nxt[c]]); x = nxt[c]; lose(c, r, x); r = 0; x = 0 fi; j = 0 }
     /* it has read all, and the tail is further */
  :: d_step { low(c) && nxt[c] >= le && fed[c] < goalOf && !boxed(c) -> r = goalOf; lose(c, r, le); r = 0 }
  :: quiet -> break
  od
}
active proctype ReadA() { readFor(A) }
active proctype ReadB() { readFor(B) }

inline sink(c) {
  do
  :: d_step { hand[c] -> got[c] = got[c] | bit(FR(hand[c] - 1)); hand[c] = 0; start[c] = 0; honest(c) }
#ifdef FALL
  :: d_step { may && (live[c] || hand[c]) -> did;                                               /* it falls behind, or back */
     if
     :: hand[c] -> set(c, FR(hand[c] - 1), start[c]); hand[c] = 0; start[c] = 0
     :: else ->
        fall(c)
     fi;
     live[c] = false }
#endif
  :: quiet -> break
  od
}
active proctype SinkA() { sink(A) }
active proctype SinkB() { sink(B) }
