/*
 * Parking: one service, one partition, entities A (fails) and B (works, but for
 * -DBOTH). A change that fails is parked: a row in the store, written with the
 * position that passes it. The log has every decided change (deliver.pml tells why
 * that may be said); refusals and contents are in refuse.pml; what tells a failing
 * change from a failing target is in parking_target.pml.
 *
 * Sinks: a state sink that writes whatever comes.  -DLOG  a log sink that skips
 * keys that it knows.
 *
 * N changes, each of A or of B; FAILS failed attempts, with the effect or without;
 * ACTS crashes, moves (-DMOVE: the old owner goes on for a while), restores
 * (-DRESTORE), reloads of the service (-DRELOAD) and resets of a dam row (-DRESET,
 * state) in all. A replay is a newer change. MAXTRY attempts until a change is given up, CAP rows per
 * service, HOT rows per entity.
 *
 * Asserted: a position passes nothing that is not in the sink, in a row or in a letter;
 * nothing older over anything newer, by an owner of the token (state); every change
 * behind the older ones of its entity (log); one key, one content; at most CAP rows;
 * at most two failed attempts at A in a row while B waits; no retry by a former owner; in the
 * end everything newest is in the sink or in a letter, and nothing deadlocks.
 *
 * Rules, each with a switch that takes it away:
 *   NO_PARK       a failing change is tried again where it stands
 *   POS_FIRST     the position is written before the rows
 *   ROWS_FIRST    the rows are written before the position
 *   MARK_FIRST    the position moves before the attempt has an outcome
 *   NO_TOKEN      rows and position are written by whoever likes
 *   NO_CLAIM      a retry is sent before attempts and next_try are written
 *   NO_NEWEST     a retry, and what is read again, goes out without a look at the dam
 *   SECOND_ROW    a newer change gets a row beside the older one (state)
 *   DROP_ROW      a row is dropped as soon as a newer change is decided (state)
 *   TRY_AT_ONCE   a newer change of a parked entity is tried as it comes (state)
 *   NO_QUEUE      it overtakes the parked ones (log)
 *   ANY_ROW       rows of an entity are tried in any order (log)
 *   QUEUE_TURN    a change that only queues earns a retry
 *   RETRY_FIRST   parked changes are tried as often as they like between new ones
 *   FRESH_TRIES   attempts begin anew with each newer change, and with each takeover
 *   LETTER_SPLIT  the row goes before the letter is stored
 *   REDERIVE      a retry sends the present content under the parked version
 *   NO_CAP        as many rows as it takes
 *   NO_HOT        rows of one entity may fill what the service has (log)
 *   DROP_LATEST   a full service lets a change pass that finds no room
 *   RELOAD_EARLY  a reloaded service begins before the attempt of its predecessor ended
 *   RELOAD_ROWS   it begins with the rows of the store and the position of the memory
 *   RESET_FORGETS a reset clears the version of the dam row
 *   RESET_BUMPS   a reset sets that version to its own position
 *
 * The bounds that show each of them stand in scripts/model.
 * ROWS_FIRST finds none: the row that is there already is recognized. MARK_FIRST is for the state sink.
 */
#ifndef N
#define N 3
#endif
#ifndef FAILS
#define FAILS 3
#endif
#ifndef ACTS
#define ACTS 2
#endif
#ifndef MAXTRY
#define MAXTRY 2
#endif
#ifndef CAP
#define CAP 3
#endif
#ifndef HOT
#define HOT 2
#endif
#define A 0
#define B 1
#define bit(v)   (1 << (v))
#define has(m,v) (((m) >> (v)) & 1)
#define upto(v)  (bit((v) + 1) - 2)              /* versions 1 to v */
#define hi(m) ((m)&32 -> 5 : ((m)&16 -> 4 : ((m)&8 -> 3 : ((m)&4 -> 2 : ((m)&2 -> 1 : 0)))))
#define lw(m) ((m)&2 -> 1 : ((m)&4 -> 2 : ((m)&8 -> 3 : ((m)&16 -> 4 : ((m)&32 -> 5 : 0)))))
#define cnt(m) (has(m,1) + has(m,2) + has(m,3) + has(m,4) + has(m,5))
#define max(a,b) ((a) > (b) -> (a) : (b))
#ifdef BOTH
#define fails(e) true
#else
#define fails(e) ((e) == A)
#endif
#ifdef NO_CAP
#define LIMIT 9
#else
#define LIMIT CAP
#endif

byte mine[2];                    /* versions of each entity */
#define ent(v) (has(mine[B], v))

typedef Store { byte W, P, park, lt, tries[2], tok }   /* watermark, position, rows, letters, attempts, token */
Store s, old; bool kept, back;
byte seen, top[2], at[2], best[2]; bool late[2];       /* the sink; see positions.pml */
#ifdef RESET
byte wiped[2];
#endif
byte assigned, acts = ACTS, left = FAILS, waits, streak; bool over;    /* streak: failed attempts at A since it succeeded or was given up */

typedef Owner {
  bool on, dirty, retry, turn;   /* turn: a retry may go before the next new change */
  byte tok, p, pk, ml, tr[2], f, end0, ahead;
#ifdef RELOAD_EARLY
  byte stray                     /* under way when its service was reloaded */
#endif
#if defined(POS_FIRST) || defined(ROWS_FIRST) || defined(LETTER_SPLIT)
  bool half
#endif
}
Owner o[2];
#define O o[d]
hidden byte x, e, k;

#define decided(c) (mine[c] & upto(s.W))
#define newest(c)  hi(decided(c))
#define rows(c)    (O.pk & mine[c])
#define bound      (O.tok == s.tok)
#define may        (acts > 0)
#ifdef NO_TOKEN
#define holds (O.p <= s.W)
#else
#define holds (bound && O.p <= s.W)
#endif

inline honest(c) {
#ifdef LOG
  assert((decided(c) & upto(s.P) & ~(seen | s.park | s.lt)) == 0);
#else
  assert(newest(c) == 0 || newest(c) > s.P || top[c] >= newest(c) || has(s.park | s.lt, newest(c)));
#endif
}
#ifdef LOG
#define one true
#else
#define one (cnt(s.park & mine[A]) <= 1 && cnt(s.park & mine[B]) <= 1)
#endif
inline check() { honest(A); honest(B); assert(cnt(s.park) <= CAP && one) }

inline effect(d, v) {
  k = ent(v);
#ifdef REDERIVE
  x = (O.retry -> newest(k) : v);
#else
  x = v;
#endif
  assert(x == v); x = 0;                                /* one key, one content */
  if
#ifdef LOG
  :: has(seen, v)
  :: else -> assert(!bound || back || (mine[k] & upto(v - 1) & ~(seen | s.lt | O.ml)) == 0); seen = seen | bit(v)
#else
  :: else ->
     if
     :: bound -> assert(v >= best[k]); best[k] = v; late[k] = false
     :: else -> late[k] = v < top[k]
     fi;
     at[k] = v
#endif
  fi;
  top[k] = max(top[k], v); k = 0
}

inline reset() {
#ifdef RELOAD_EARLY
  O.stray = 0;
#endif
  O.on = false; O.dirty = false; O.retry = false; O.turn = false; O.tok = 0; O.p = 0; O.pk = 0; O.ml = 0;
  O.tr[A] = 0; O.tr[B] = 0; O.f = 0; O.end0 = 0; O.ahead = 0; waits = 0;
#if defined(POS_FIRST) || defined(ROWS_FIRST) || defined(LETTER_SPLIT)
  O.half = false
#endif
}
inline claim() {
  O.tok = 0; x = 1;
  do :: x == s.tok || x == old.tok || x == o[1-d].tok -> x++ :: else -> break od;
  s.tok = x; O.tok = x; x = 0
}
inline copy(to, from) {
  to.W = from.W; to.P = from.P; to.park = from.park; to.lt = from.lt; to.tok = from.tok; to.tries[A] = from.tries[A]; to.tries[B] = from.tries[B]
}
inline write() {
#ifndef ROWS_FIRST
  s.P = O.p;
#endif
#ifndef POS_FIRST
  s.park = O.pk; s.tries[A] = O.tr[A]; s.tries[B] = O.tr[B];
#ifndef LETTER_SPLIT
  s.lt = s.lt | O.ml; O.ml = 0;
#endif
#endif
#if defined(POS_FIRST) || defined(ROWS_FIRST) || defined(LETTER_SPLIT)
  O.half = true;
#endif
  claim(); O.dirty = false; O.ahead = 0
}

/* The version of a dam row; wiped is the newest change at its last reset. */
#if defined(RESET_FORGETS)
#define dam(c) (wiped[c] && wiped[c] >= newest(c) -> 0 : newest(c))
#elif defined(RESET_BUMPS)
#define dam(c) (wiped[c] && wiped[c] >= newest(c) -> 9 : newest(c))
#else
#define dam(c) newest(c)
#endif

#ifdef RETRY_FIRST
#define myTurn true
#else
#define myTurn (O.turn || O.p == s.W || FULL)
#endif
#ifdef QUEUE_TURN
#define QUEUED O.turn = true;
#else
#define QUEUED
#endif
#ifdef LOG
#define FULL (cnt(O.pk) >= LIMIT && (O.pk & mine[ent(v1)]))
#else
#define FULL false
#endif
#ifdef LOG
#define worth(v) true
#else
#ifdef NO_NEWEST
#define worth(v) true
#else
#define worth(v) (dam(ent(v)) <= (v))
#endif
#endif

/* Change v of entity e has failed; its row is written with the position. */
inline putAside(v) {
  e = ent(v);
#if defined(LOG) || defined(SECOND_ROW)
  O.pk = O.pk | bit(v);
#else
  O.pk = O.pk & ~mine[e] | bit(v);
#endif
  O.p = max(O.p, v); O.dirty = true
}
inline giveUp(v) { O.pk = O.pk & ~bit(v); O.ml = O.ml | bit(v); O.tr[ent(v)] = 0; O.dirty = true; waits = 0; if :: ent(v) == A -> streak = 0 :: else fi }
#define room(c) (cnt(O.pk) < LIMIT || STATE && rows(c))
#ifdef LOG
#define STATE false
#else
#define STATE true
#endif

#define waiting(c) (mine[c] & upto(s.W) & ~upto(O.p))
inline failed() {                                      /* O.f has failed */
  left--; e = ent(O.f);
  if :: ACTS == 0 && e == A -> streak++; assert(streak <= MAXTRY) :: else fi;
  if :: e == A && waiting(B) && (cnt(O.pk) < CAP || HOT < CAP) && bound -> waits++; assert(waits <= 2) :: else fi;
#ifndef NO_PARK
  if
  :: O.retry ->                                        /* attempts were counted by the claim */
     if :: O.tr[e] >= MAXTRY -> giveUp(O.f) :: else fi; O.f = 0
  :: else ->
     if
     :: !room(e) ->                                    /* full: the position stays, and takes turns with the rows */
#ifdef DROP_LATEST
        O.p = max(O.p, O.f); O.dirty = true;
#else
        O.ahead--;
#endif
        O.f = 0
     :: else ->
        putAside(O.f);
#ifdef FRESH_TRIES
        O.tr[e] = 1;
#else
        O.tr[e]++;
#endif
        if :: O.tr[e] >= MAXTRY -> giveUp(O.f) :: else fi; O.f = 0
     fi
  fi;
  O.retry = false;
#endif
  e = 0
}

#ifdef ANY_ROW
#define head(c) (left & 1 -> hi(rows(c)) : lw(rows(c)))
#else
#ifdef SECOND_ROW
#define head(c) (left & 1 -> hi(rows(c)) : lw(rows(c)))
#else
#define head(c) lw(rows(c))
#endif
#endif
/* A row is tried: the claim counts the attempt, under the token. */
inline retryRow() {
  if
#ifdef NO_CLAIM
  :: true ->
#else
  :: !holds -> reset()
  :: else ->
#endif
     O.f = head(e); O.retry = true; O.turn = false; O.tr[e]++;
#ifndef NO_CLAIM
     write(); check();
#endif
     assert(bound)                                      /* no retry by a former owner */
  fi;
  e = 0
}

inline succeed() {
#ifdef RELOAD_EARLY
  O.stray = O.f;
#endif
  if :: O.f && !O.retry -> O.ahead-- :: else fi;
  O.f = 0; O.retry = false; O.turn = false; O.end0 = s.W; waits = 0;
#ifdef RELOAD_ROWS
  O.pk = s.park; O.tr[A] = s.tries[A]; O.tr[B] = s.tries[B]
#endif
}

#define v1 (O.p + 1)
#define quiet (acts == 0 && left == 0 && s.W == N && s.P == N && s.park == 0 && o[assigned].on && !o[1-assigned].on && \
  o[assigned].tok == s.tok && !o[assigned].dirty && o[assigned].f == 0 && !HALF)
#if defined(POS_FIRST) || defined(ROWS_FIRST) || defined(LETTER_SPLIT)
#define HALF o[assigned].half
#else
#define HALF false
#endif

#ifdef MARK_FIRST
#define MARKS !O.retry
#else
#define MARKS false
#endif

proctype Deliver(byte d) {
  do
  :: d_step { !O.on && assigned == d -> claim(); O.on = true; O.p = s.P; O.pk = s.park; O.end0 = s.W; O.turn = false;
#ifndef FRESH_TRIES
     O.tr[A] = s.tries[A]; O.tr[B] = s.tries[B];
#endif
     waits = 0 }

  /* The next change of the log; two may be ahead of the position that is saved. */
#define next  (O.on && O.f == 0 && O.p < s.W && O.ahead < 2)
#ifdef LOG
#ifdef NO_QUEUE
#define behind false
#else
#define behind (rows(ent(v1)) != 0)
#endif
#ifdef NO_HOT
#define hot false
#else
#define hot (cnt(rows(ent(v1))) >= HOT)
#endif
  /* Its entity is parked: it queues. The head of a long queue is given up. */
  :: d_step { next && behind && hot -> x = lw(rows(ent(v1))); giveUp(x); x = 0;
     if :: rows(ent(v1)) -> O.tr[ent(v1)] = 0; putAside(v1); O.ahead++ :: else fi; e = 0 }
  :: d_step { next && behind && !hot && cnt(O.pk) < LIMIT -> putAside(v1); O.ahead++; QUEUED e = 0 }
  :: d_step { next && !behind -> O.f = v1; O.ahead++; O.retry = false; O.turn = true }
#else
#ifdef TRY_AT_ONCE
#define behind false
#else
#define behind (rows(ent(v1)) != 0)
#endif
  /* It takes the place of the parked one, with its attempts. */
  :: d_step { next && behind -> putAside(v1);
#ifdef FRESH_TRIES
     O.tr[ent(v1 - 1)] = 0;
#endif
     O.ahead++; QUEUED e = 0 }
  :: d_step { next && !behind && (v1 > O.end0 || worth(v1)) -> O.f = v1; O.ahead++; O.retry = false; O.turn = true;
#ifdef MARK_FIRST
     O.p = O.f; O.dirty = true
#endif
     }
  :: d_step { next && newest(ent(v1)) > v1 -> O.p = v1; O.ahead++; O.dirty = true }            /* overtaken, coalesced */
#endif

  /* A parked one is due: attempts and next_try are written, then it is sent. */
#define due(c) (O.on && O.f == 0 && rows(c) && myTurn)
  :: d_step { due(A) && worth(head(A)) -> e = A; retryRow() }
  :: d_step { due(B) && worth(head(B)) -> e = B; retryRow() }
#ifdef DROP_ROW                                        /* else the row waits for the newer one, which is on its way */
  :: d_step { due(A) && !worth(head(A)) -> O.pk = O.pk & ~bit(head(A)); O.dirty = true }       /* a newer one is on its way */
  :: d_step { due(B) && !worth(head(B)) -> O.pk = O.pk & ~bit(head(B)); O.dirty = true }
#endif

  /* Outcomes. */
  :: d_step { O.on && O.f -> effect(d, O.f); e = ent(O.f); waits = 0; if :: e == A -> streak = 0 :: else fi;
#if defined(LOG) || defined(SECOND_ROW)
     O.pk = O.pk & ~bit(O.f);
#else
     O.pk = O.pk & ~mine[e];
#endif
     O.tr[e] = 0; O.p = max(O.p, O.f); O.f = 0; O.retry = false; O.dirty = true; e = 0 }
  :: d_step { O.on && O.f && left && fails(ent(O.f)) -> failed() }
  :: d_step { O.on && O.f && left && fails(ent(O.f)) -> effect(d, O.f); failed() }             /* taken, no answer */
  :: d_step { left -> left-- }

  /* Position, rows and letters in one transaction. */
  :: d_step { O.on && O.dirty && (!O.f || MARKS) -> if :: holds -> write(); check() :: else -> reset() fi }
#ifdef POS_FIRST
  :: d_step { O.on && O.half && holds -> s.park = O.pk; s.lt = s.lt | O.ml; O.ml = 0; O.half = false }
#endif
#ifdef ROWS_FIRST
  :: d_step { O.on && O.half && holds && !O.dirty -> s.P = O.p; O.half = false }
#endif
#ifdef LETTER_SPLIT
  :: d_step { O.on && O.half -> s.lt = s.lt | O.ml; O.ml = 0; O.half = false }
#endif
#ifdef RELOAD
  /* A reload of the service: an attempt under way ends, its outcome unknown. The successor
     goes on at the position, with the rows and attempts of its predecessor. */
  :: d_step { may && O.on -> acts--; succeed() }
  :: d_step { may && O.on && O.f -> acts--; effect(d, O.f); succeed() }
#endif
#ifdef RELOAD_EARLY
  :: d_step { O.on && O.stray -> e = O.stray; O.stray = 0; effect(d, e); e = 0 }
#endif
  :: d_step { O.on && assigned == d && !bound -> reset() }
  :: d_step { O.on && assigned != d -> reset() }
  :: d_step { may && O.on -> acts--; reset() }                                                 /* crash */
  :: over -> break
  od
}

proctype World() {
  do
  :: d_step { s.W < N -> s.W++ }
  :: d_step { may -> acts-- }
#ifdef MOVE
  :: d_step { may -> acts--; assigned = 1 - assigned }
#endif
#ifdef RESET
  :: d_step { may && newest(A) > wiped[A] -> acts--; wiped[A] = newest(A) }
#endif
#ifdef RESTORE
  :: d_step { may && !kept && s.tok -> acts--; kept = true; copy(old, s) }
  :: d_step { may && kept -> acts--; copy(s, old); s.tok = 0; back = true; best[A] = 0; best[B] = 0; check() }
#endif
  :: d_step { quiet -> over = true }; break
  od
}

init {
  atomic {
    x = 1;
    do
    :: x <= N -> if :: mine[A] = mine[A] | bit(x) :: mine[B] = mine[B] | bit(x) fi; x++
    :: else -> break
    od;
    x = 0;
    run World(); run Deliver(0);
#ifdef MOVE
    run Deliver(1)
#endif
  }
  (_nr_pr == 1);
#ifdef LOG
  assert((upto(N) & ~(seen | s.lt)) == 0)
#else
  assert(newest(A) == 0 || at[A] == newest(A) || has(s.lt, newest(A)) || late[A]);
  assert(newest(B) == 0 || at[B] == newest(B) || has(s.lt, newest(B)) || late[B])
#endif
}
