/*
 * Failing changes and failing targets, by answer and time: one service, K entities with one change each, in the
 * order of the log; `bad` of them fail whatever happens. The target works, answers everything with an
 * error (503), or takes no connection. WINDOW changes are in hand at most, CAP rows are parked.
 *
 * An answer against a change parks it at once. Without room it is held: it keeps the position, changes
 * behind it in the window go out, and held ones take turns with rows. Without a connection nothing is
 * parked or counted. A row that is old (retry.for has passed; the adversary
 * says when) is given up by a failure if another entity succeeded since its attempt before, or if no
 * other was tried; one whose entity has a full queue (log sink; the adversary says when) only if another
 * succeeded; any once it is very old. A write may fail as a whole because of one change (WHOLE): it is halved.
 * ACTS kills lose what is in memory: what was held, and who succeeded since when.
 *
 * Asserted: at most CAP rows; a good change is given up only if it failed in two separate outages, or
 * very old; while the target works a good change of the window is tried after PATIENCE attempts, and at
 * rest every change takes effect or is given up after BOUND attempts.
 *
 * Rules, each with a switch that takes it away:
 *   BY_TIME      an old row is given up only with evidence
 *   BY_QUEUE     so is the head of a full queue
 *   QUEUE_ALONE  for which it does not suffice that no other was tried
 *   NO_END       a very old row is given up without
 *   PROBE_HEAD   held changes take turns
 *   STOP_FULL    a full service still tries what is in its window
 *   ROWS_LAST    rows and held changes take turns
 *   PARK_DOWN    without a connection nothing is parked
 *   NO_CAP       rows are bounded
 *   PARK_WHOLE   a write that failed as a whole parks nothing unless it was of one change (WHOLE)
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
#ifndef FLAPS
#define FLAPS 3
#endif
#ifndef ACTS
#define ACTS 1
#endif
#ifndef PATIENCE
#define PATIENCE (2*WINDOW + 2*CAP + 2)   /* a row that becomes free lets one more in */
#endif
#define BOUND (K * (2*WINDOW + 2*CAP + 4))
#define bit(i)   (1 << (i))
#define has(m,i) (((m) >> (i)) & 1)
#define cnt(m)   (has(m,0) + has(m,1) + has(m,2) + has(m,3) + has(m,4))
#define all      (bit(K) - 1)
#define UP 0
#define ERR 1
#define DOWN 2

byte bad, mode, flaps = FLAPS, acts = ACTS, phase = 1;
byte done, rows, dead, read, held;
byte okay, tried;               /* entities since whose last attempt another one succeeded, was tried */
byte old, very, crowd;          /* rows older than retry.for, than seven times that; heads of full queues */
byte one, two;                  /* good changes that failed in an outage; in two */
byte lastPhase[K];
byte last = K, lastRow = K, idle, rest; bool turn, over;
#ifdef WHOLE
byte limit = WINDOW;
#else
#define limit 1
#endif
byte i, b, n, f;

#define hand  ((bit(read) - 1) & ~(done | rows | dead))
#define fresh (hand & ~held)
#ifdef NO_CAP
#define room true
#else
#define room (cnt(rows) < CAP)
#endif
#define works(c) (mode == UP && !has(bad, c))
#define canRead (read < K && cnt(hand) < WINDOW)
#define stable (mode == UP && flaps == 0 && acts == 0 && read > 0)

#ifdef NO_END
#define RESTOLD ((rows & ~old) == 0)
#else
#define RESTOLD false
#endif
inline good(c) { done = done | bit(c); rows = rows & ~bit(c); held = held & ~bit(c); okay = okay | (all & ~bit(c)); idle = 0; rest = 0 }
inline counts() {
  if :: mode == UP && (hand & ~bad) -> idle++; assert(idle <= PATIENCE) :: else -> idle = 0 fi;
  if :: stable && ((rows & ~(old & very)) == 0 || RESTOLD) -> rest++; assert(rest <= BOUND) :: else -> rest = 0 fi
}
#ifdef BY_QUEUE
#define CROWDED true
#else
#ifdef QUEUE_ALONE
#define CROWDED (has(okay, c) || !has(tried, c))
#else
#define CROWDED has(okay, c)
#endif
#endif
#ifdef BY_TIME
#define OLD_ENOUGH has(old, c)
#else
#ifdef NO_END
#define OLD_ENOUGH (has(old, c) && (has(okay, c) || !has(tried, c)))
#else
#define OLD_ENOUGH (has(old, c) && (has(okay, c) || !has(tried, c)) || has(very, c))
#endif
#endif
inline failed(c) {                       /* an answer against c */
  if
  :: mode == ERR && !has(bad, c) && lastPhase[c] != phase ->
     if :: has(one, c) -> two = two | bit(c) :: else -> one = one | bit(c) fi; lastPhase[c] = phase
  :: else
  fi;
  if
  :: has(rows, c) ->
     if
     :: (OLD_ENOUGH || has(crowd, c) && CROWDED) -> rows = rows & ~bit(c); dead = dead | bit(c); rest = 0;
        assert(has(bad, c) || has(two, c) || has(very, c) || has(old, c) && !has(tried, c))
     :: else
     fi
  :: !has(rows, c) && room -> rows = rows | bit(c); held = held & ~bit(c); assert(cnt(rows) <= CAP)
  :: !has(rows, c) && !room -> held = held | bit(c)
  fi
}
inline attempted(c) { okay = okay & ~bit(c); tried = tried & ~bit(c) | (all & ~bit(c)) }

#ifdef STOP_FULL
#define MAYTRY room
#else
#define MAYTRY true
#endif
#define hi_(m) (has(m,4) -> 4 : (has(m,3) -> 3 : (has(m,2) -> 2 : (has(m,1) -> 1 : 0))))
/* evidence is what was known before this attempt */
#define FAILONE failed(f); attempted(f)
#ifdef WHOLE
#define GROW limit = (2 * limit > WINDOW -> WINDOW : 2 * limit)
#else
#define GROW skip
#endif

proctype Service() {
  do
  :: d_step { canRead -> read++ }

  /* New changes; with WHOLE several in one write, which fails as a whole. */
  :: atomic { fresh && (cnt(fresh) >= limit || !canRead) && !(rows && turn) && MAYTRY -> d_step {
     b = 0; i = 0; n = 0;
     do :: i < K && has(fresh, i) && n < limit -> b = b | bit(i); n++; i++ :: i < K && !(has(fresh, i) && n < limit) -> i++ :: else -> break od; i = 0;
     turn = true;
     if
     :: mode == DOWN ->
#ifdef PARK_DOWN
        f = hi_(b); attempted(f); failed(f);
#else
        skip
#endif
     :: mode != DOWN && n == 1 -> f = hi_(b); n = has(tried, f);
        if :: works(f) -> attempted(f); good(f); GROW :: else -> FAILONE fi;
        counts()
#ifdef WHOLE
     :: mode != DOWN && n > 1 && mode == UP && (b & bad) == 0 ->
        do :: i < K -> if :: has(b, i) -> attempted(i); good(i) :: else fi; i++ :: else -> break od; i = 0; GROW
     :: mode != DOWN && n > 1 && !(mode == UP && (b & bad) == 0) ->
#ifdef PARK_WHOLE
        do :: i < K -> if :: has(b, i) -> f = i; assert(mode != UP || has(bad, f)); FAILONE :: else fi; i++ :: else -> break od; i = 0
#else
        limit = n / 2
#endif
#endif
     fi;
     b = 0; n = 0; f = 0 } }

  /* Held ones: without room, each time another one, in turns with the rows. */
  :: atomic { !fresh && !canRead && held && !(rows && turn) && MAYTRY -> d_step {
     i = 0;
#ifndef PROBE_HEAD
     if :: last < K -> i = last + 1 :: else fi;
#endif
     do :: i < K && !has(held, i) -> i++ :: i >= K -> i = 0 :: i < K && has(held, i) -> break od;
     f = i; last = i; i = 0; turn = true;
     if
     :: mode == DOWN
     :: mode != DOWN && works(f) -> attempted(f); good(f); GROW; counts()
     :: mode != DOWN && !works(f) -> FAILONE; counts()
     fi;
     f = 0 } }

  /* A parked one. */
#ifdef ROWS_LAST
  :: atomic { rows && !hand && !canRead ->
#else
  :: atomic { rows && (turn || !hand && !canRead) ->
#endif
     d_step {
     turn = false; i = 0;
     do :: !has(rows, i) || lastRow < K && i <= lastRow && (rows >> (lastRow + 1)) -> i++ :: else -> break od;
     f = i; lastRow = i; i = 0;
     if
     :: mode == DOWN
     :: mode != DOWN && works(f) -> attempted(f); good(f); counts()
     :: mode != DOWN && !works(f) -> FAILONE; counts()
     fi;
     f = 0 } }
  :: d_step { acts -> acts--; held = 0; okay = 0; tried = all; last = K; lastRow = K; turn = false; idle = 0 }          /* killed */
  :: over -> break
  od
}
proctype World() {
  do
  :: d_step { flaps && mode == UP -> flaps--; mode = ERR; phase++; idle = 0 }
  :: d_step { flaps && mode == UP -> flaps--; mode = DOWN; idle = 0 }
  :: d_step { mode == ERR || mode == DOWN -> mode = UP; idle = 0 }
  :: d_step { flaps && mode == ERR -> flaps--; mode = DOWN }
  :: d_step { flaps -> flaps-- }
  :: d_step { acts -> acts-- }
  :: d_step { rows & ~old -> old = old | rows }                  /* retry.for passes */
#ifdef QUEUES
  :: d_step { rows & ~crowd -> crowd = crowd | rows }             /* more changes of these entities came */
#endif
  :: d_step { rows & ~very && (old & rows) == rows -> very = very | rows }
  :: d_step { stable && read == K && (done | dead) == all -> over = true }; break
  od
}

init {
  atomic {
    i = 0; tried = all;
    do :: i < K -> if :: bad = bad | bit(i) :: skip fi; i++ :: else -> break od; i = 0;
    run Service(); run World()
  }
}
