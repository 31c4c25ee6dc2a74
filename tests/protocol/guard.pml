/*
 * The guard of one service: N entities are retracted at a source, LIMIT of them may leave. Two
 * processes have half of the entities each; a process counts, writes and saves its position, and
 * ACTS crashes forget what was not saved. The window may pass once. An operator releases a hold.
 *
 * Asserted: at most LIMIT entities leave before the release, none is counted between the first
 * refusal and the release, a hold has a reason, and in the end every retraction took effect.
 *
 * Rules, each with a switch that takes it away:
 *   COUNT_LATE    an entity is counted before it is written
 *   COUNT_TWICE   an entity is counted once, however often it is asked for
 *   TWO_STEPS     the count is compared and raised in one transaction
 *   HOLD_LATER    that transaction writes the hold: the window may pass before another one does
 *   PASS_HELD     the position stays before a held change
 */
#define N 4
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef ACTS
#define ACTS 2
#endif

bool counted[N], left[N], held, released, passed;
byte count, gone, acts = ACTS, done;
byte position[2];

#ifdef ENOUGH
#define EXCESS false      /* only LIMIT entities are retracted */
#define LAST 1
#else
#define EXCESS true
#define LAST 2
#endif
bool refused;             /* the limit did not suffice */
inline hold() { held = true; assert(EXCESS) }

inline count_up(e) {
#ifdef COUNT_TWICE
  count++
#else
  if :: !counted[e] -> count++; assert(!refused || released) :: else fi
#endif
  ; counted[e] = true
}

inline write(e) {
  if
  :: !left[e] -> left[e] = true;
     if :: !released && !passed -> gone++; assert(gone <= LIMIT) :: else fi
  :: else
  fi
}

/* known: the entity is counted already */
#ifdef COUNT_TWICE
#define known(e) false
#else
#define known(e) counted[e]
#endif

proctype Process(byte me) {
  byte at, e, seen; bool ok;
  at = 0;
  do
  :: at == LAST -> break
  :: at < LAST ->
     e = me * LAST + at; ok = false;
     if :: held && !released -> (released) :: else fi;
#ifdef COUNT_LATE
     write(e);
#endif
#ifdef TWO_STEPS
     seen = count;
     if
     :: released || known(e) || seen < LIMIT -> ok = true; count_up(e)
     :: else -> refused = true; hold()
     fi;
#else
#ifdef HOLD_LATER
     atomic { if :: released || known(e) || count < LIMIT -> ok = true; count_up(e) :: else -> refused = true fi };
     if
     :: ok
     :: !ok -> hold()
     :: !ok && acts && !passed -> acts--; passed = true; count = 0; gone = 0    /* crash; the window passes */
     fi;
#else
     atomic { if :: released || known(e) || count < LIMIT -> ok = true; count_up(e) :: else -> refused = true; hold() fi };
#endif
#endif
     if
     :: ok -> write(e);
        if
        :: at++; position[me] = at                     /* saved */
        :: acts -> acts--; at = position[me]           /* crash before the save */
        fi
     :: !ok ->
#ifdef PASS_HELD
        at++; position[me] = at
#else
        skip
#endif
     fi
  od;
  done++
}

init { atomic { run Process(0); run Process(1) }
  do
  :: atomic { held && !released -> released = true }
  :: atomic { done == 2 -> break }
  od;
  byte i; i = 0;
  do :: i < 2 * LAST -> assert(left[i]); i++ :: else -> break od
}
