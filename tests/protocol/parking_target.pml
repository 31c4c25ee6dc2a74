/*
 * Parking: is it the change or the target? One service, K entities with one change
 * each, in the order of the log; `bad` of them fail whatever happens, the target may
 * go down and come back. The worker has WINDOW changes in hand at most.
 *
 * A failed change is a suspect and stays in hand; the position waits. Suspects do not
 * keep new changes from being tried while the window has room. A suspect is parked
 * when a change of another entity succeeded in an attempt that began after it had failed.
 * When everything in hand is suspect, the target counts as unreachable: nothing is
 * parked, one change is tried at a time, each time another one. After ROUNDS such
 * probes in a row the oldest suspect is parked all the same, so that what lies behind
 * the window is tried, and attempts count until something succeeds. Else an attempt at
 * a row counts if another entity succeeded, or none was tried, since the one before it.
 * At CAP rows nothing more is parked; probes and rows take turns.
 *
 * A suspect of an attempt in which nothing succeeded gets a second one before it is parked:
 * else the first success after an outage parks all that was in hand. A suspect that is
 * alone in hand may be parked at once, with attempts that count (the target answered).
 *
 * Asserted: what is parked is bad, or failed in an outage that has ended, or ROUNDS
 * probes failed; what is given up is bad, or was tried alone, or ROUNDS probes failed;
 * at most CAP rows; while the target is up, a good change of the window
 * is tried after PATIENCE attempts at most, one behind the window after BOUND; the search ends only where every
 * change took effect or was given up.
 *
 * Rules, each with a switch that takes it away:
 *   SAME_BATCH   a success in the same attempt is enough, which began before the failure
 *   BEFORE       a success before the failure is enough
 *   PARK_ALL     what fails is parked, whatever else fails
 *   PROBE_HEAD   the probe is always the oldest change
 *   NO_BACKSTOP  nothing is parked without a success, however long it fails
 *   NO_CAP       as many rows as it takes
 *   STOP_FULL    a full service tries its rows and nothing else
 *   COUNT_ALL    attempts count while the target is unreachable
 *   ONE_CHANCE   the first success after an outage parks all suspects
 *
 * The bounds stand in scripts/model.
 */
#ifndef K
#define K 4
#endif
#ifndef WINDOW
#define WINDOW 2
#endif
#ifndef CAP
#define CAP 2
#endif
#ifndef ROUNDS
#define ROUNDS 4
#endif
#ifndef FLAPS
#define FLAPS 2
#endif
#ifndef MAXTRY
#define MAXTRY 3
#endif
#ifndef BOUND
#define BOUND (K * (ROUNDS + MAXTRY))
#endif
#define PATIENCE (2*WINDOW + CAP + 1)
#define bit(i)   (1 << (i))
#define has(m,i) (((m) >> (i)) & 1)
#define cnt(m)   (has(m,0) + has(m,1) + has(m,2) + has(m,3) + has(m,4))
#ifdef NO_CAP
#define LIMIT K
#else
#define LIMIT CAP
#endif

byte bad;                     /* entities whose change fails */
bool up = true; byte flaps = FLAPS;
byte done, rows, dead;        /* took effect, parked, given up */
byte read;                    /* changes taken into hand so far: 0 to read-1 */
byte sus;                     /* suspects, in hand */
byte ended;                   /* suspects and rows whose last failure was in an outage that has ended, or bad */
byte probes, idle, last = K, lastRow = K;  /* probes in a row that failed; attempts since a good one could have been tried; last one tried */
byte tries[K];                /* attempts that counted */
byte behind;                  /* attempts while good ones wait behind a window of bad ones */
bool doubt;                   /* ROUNDS probes failed, and nothing succeeded since */
byte clear, twice;            /* suspects that failed beside a success; that had their second attempt */
byte lone;                    /* an attempt counted in doubt, or with nobody else tried */
byte okay, tried;             /* entities since whose last attempt another one succeeded, was tried */
bool turn, over;
byte i, b, ok, n;

#define hand    ((bit(read) - 1) & ~(done | rows | dead))
#define fresh   (hand & ~sus)
#define full    (cnt(rows) >= LIMIT)
#define works(c) (up && !has(bad, c))
#define canRead (read < K && cnt(hand) < WINDOW)
#define away    (hand && !fresh && !canRead)          /* all in hand failed, nobody else can be asked */

inline parkOne(c, old) {
  assert(old || has(bad, c) || has(ended, c) && has(clear | twice, c));   /* not for the target's fault */
  rows = rows | bit(c); sus = sus & ~bit(c); tries[c] = 1; if :: old -> lone = lone | bit(c) :: else fi;
  assert(cnt(rows) <= CAP)
}
/* c succeeded in an attempt that began now: what failed before failed by itself. */
inline evidence(before) {
  i = 0;
  do
#ifdef ONE_CHANCE
#define again(c) false
#else
#define again(c) (!has(clear | twice, c))
#endif
  :: i < K && has(before & sus, i) && again(i) -> sus = sus & ~bit(i); twice = twice | bit(i); i++
  :: i < K && !(has(before & sus, i) && again(i)) ->
     if :: has(before, i) && has(sus, i) && cnt(rows) < LIMIT -> parkOne(i, false) :: else fi; i++
  :: else -> break
  od;
  i = 0; probes = 0
}
inline failure(c) {
  sus = sus | bit(c);
  if :: up || has(bad, c) -> ended = ended | bit(c) :: else -> ended = ended & ~bit(c) fi
}
inline counted() {
  if :: up && !full && !(hand & ~bad) && (bit(K) - 1) & ~(done | bad | dead) -> behind++; assert(behind <= BOUND) :: else fi;
  if :: up && (hand & ~bad) -> idle++; assert(idle <= PATIENCE) :: else -> idle = 0 fi }
inline good(c) { done = done | bit(c); rows = rows & ~bit(c); sus = sus & ~bit(c); idle = 0; okay = okay | ~bit(c) & (bit(K) - 1); doubt = false; behind = 0 }
inline attempt(c) { tried = tried & ~bit(c) | ~bit(c) & (bit(K) - 1) }

proctype Worker() {
  do
  :: atomic { canRead -> read++ }

  /* New changes go out in one attempt, with an outcome each. The target may go down in
     the middle of it: `cut` of them were before that. */
  :: atomic { fresh && !canRead -> b = fresh; n = sus; ok = 0; i = 0;
     do
     :: i < K && has(b, i) ->
        attempt(i);
        if :: works(i) -> ok = ok | bit(i) :: else -> failure(i); clear = clear & ~bit(i) fi;
        if :: up && flaps -> up = false; flaps-- :: skip fi;                     /* in the middle */
        i++
     :: i < K && !has(b, i) -> i++
     :: else -> break
     od;
     i = 0;
     do :: i < K -> if :: has(ok, i) -> good(i) :: has(b & ~ok, i) && ok -> clear = clear | bit(i) :: else fi; i++ :: else -> break od;
     i = 0;
     d_step {
     if
#ifdef PARK_ALL
     :: true -> evidence(255)
#else
     :: ok ->
#ifdef SAME_BATCH
        evidence(255)
#else
        evidence(n)
#endif
#endif
     :: else ->
#ifdef BEFORE
        if :: done -> evidence(255) :: else fi;
#endif
        counted()
     fi };
     ok = 0; b = 0; n = 0; turn = true; last = K }

  /* Everything in hand is suspect: one probe at a time, the next in turn. */
  :: atomic { away && (!rows || !turn || !full) ->
#ifdef STOP_FULL
     !full;
#endif
     i = 0;
#ifndef PROBE_HEAD
     if :: last < K -> i = last + 1 :: else fi;
#endif
     do :: i < K && !has(hand, i) -> i++ :: i >= K -> i = 0 :: i < K && has(hand, i) -> break od;
     last = i; b = i; i = 0; turn = true; attempt(b); okay = okay & ~bit(b);
     d_step {
     if
     :: works(b) -> n = sus & ~bit(b); good(b); evidence(n)
     :: else -> n = 0; failure(b); clear = clear & ~bit(b); probes++; counted();
#ifndef NO_BACKSTOP
        if
        :: hand == bit(b) && !full -> probes = 0; parkOne(b, true)               /* alone */
        :: probes >= ROUNDS && !full -> probes = 0; behind = 0; doubt = true; i = 0;
           do :: !has(hand, i) -> i++ :: else -> break od;
           b = i; i = 0; parkOne(b, true)
        :: else -> if :: probes >= ROUNDS -> probes = 0; doubt = true :: else fi
        fi
#endif
     fi };
     b = 0; n = 0 }

  /* A parked one, between new ones. */
  :: atomic { rows && (turn || !hand && !canRead) -> turn = false; i = 0;
     do
     :: !has(rows, i) || i <= lastRow && rows >> (lastRow + 1) && lastRow < K -> i++       /* in turn, by next_try */
     :: else -> break
     od;
     b = i; i = 0; lastRow = b;
     d_step {
     n = has(tried, b); ok = has(okay, b); okay = okay & ~bit(b); tried = tried & ~bit(b) | ~bit(b) & (bit(K) - 1);
     if
     :: works(b) -> good(b); n = sus; evidence(n)
     :: else ->
        counted();
        if :: probes < ROUNDS -> probes++ :: else fi;
        if :: probes == ROUNDS -> doubt = true :: else fi;                       /* rows that fail side by side end, too */
#ifndef COUNT_ALL
        if
        :: n && !ok && !doubt -> skip                                                      /* others were tried, none succeeded */
        :: else -> tries[b]++; if :: !n || doubt -> lone = lone | bit(b) :: else fi
        fi
#else
        tries[b]++
#endif
        ;
        if :: tries[b] >= MAXTRY -> dead = dead | bit(b); rows = rows & ~bit(b); assert(has(bad, b) || has(lone, b) || doubt) :: else fi
     fi };
     b = 0; n = 0; ok = 0 }
  :: over -> break
  od
}

proctype Target() {
  do
  :: d_step { up && flaps -> up = false; flaps-- }
  :: d_step { !up -> up = true; ended = ended | (sus | rows); idle = 0 }
  :: d_step { flaps -> flaps-- }
  :: d_step { up && flaps == 0 && read == K && (done | dead) == bit(K) - 1 -> over = true }; break
  od
}

init {
  atomic {
    i = 0;
    do :: i < K -> if :: bad = bad | bit(i) :: skip fi; i++ :: else -> break od; i = 0;
    run Worker(); run Target()
  }
}
