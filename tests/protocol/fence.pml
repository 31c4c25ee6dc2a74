/*
 * The fence: what one entity remembers of one source, and why it is asked
 * before noise is dropped. A producer sends events and may send any earlier one
 * again, late, under the same id. Every decision is atomic; decide.pml tells why.
 *
 * Rules, each with a switch that takes it away:
 *   NO_FENCE     nothing is remembered
 *   NOISE_FIRST  an event that changes nothing is dropped before the fence notes it
 */
#ifndef EVENTS
#define EVENTS 4        /* different events */
#endif
#ifndef REPEATS
#define REPEATS 2       /* late repetitions */
#endif
#define bit(i)    (1 << (i))
#define has(m, i) (((m) >> (i)) & 1)

byte content;           /* bit i: content of event i, A or B */
byte sent, repeats;     /* events sent for the first time, repetitions so far */
byte doc = 2;           /* stored source document; 2: none */
byte seen;              /* the fence: ids that were taken in */

inline decide(e) {
  if
#ifdef NOISE_FIRST
  :: doc == has(content, e) -> skip
  :: doc != has(content, e) && has(seen, e) -> skip
#else
#ifndef NO_FENCE
  :: has(seen, e) -> skip                        /* stale */
#endif
  :: !has(seen, e) && doc == has(content, e) -> seen = seen | bit(e)   /* noise, but remembered */
#endif
#ifdef NO_FENCE
  :: else -> doc = has(content, e)
#else
  :: else -> doc = has(content, e); seen = seen | bit(e)
#endif
  fi;
  assert(doc == has(content, sent - 1))          /* nothing older overwrites anything newer */
}

active proctype Producer() {
  byte e;
  do
  :: atomic { sent < EVENTS -> if :: content = content | bit(sent) :: skip fi; sent++; e = sent - 1; decide(e); e = 0 }
  :: atomic { sent > 0 && repeats < REPEATS -> repeats++; select(e : 0 .. sent - 1); decide(e); e = 0 }
  :: sent == EVENTS && repeats == REPEATS -> break
  od
}
