/*
 * A service slower than decide, and a log bounded by size: E entities, LOG frames of one change
 * each. What retention takes before the service has it is passed as a gap and requested again.
 * Searched for cycles without progress: requests that push out what was requested before, for ever.
 *
 *   NO_THROTTLE  requests wait while the service is in the older half of its log
 */
#ifndef E
#define E 3
#endif
#define LOG 2
#define bit(i) (1 << (i))
#ifdef NO_THROTTLE
#define allowed true
#else
#define allowed (n < LOG)
#endif

byte job = bit(E) - 1; /* entities to request */
byte gap;              /* those that retention took from the log */
byte q[LOG + 1], n;    /* the log above the position */

inline shift() { q[0] = q[1]; q[1] = q[2]; q[2] = 0; n-- }

init {
  do
  :: d_step { job && allowed ->
     if :: job & 1 -> q[n] = 1 :: !(job & 1) && (job & 2) -> q[n] = 2 :: else -> q[n] = 4 fi;
     job = job & ~q[n]; n++;
     if :: n > LOG -> gap = gap | q[0]; shift() :: else fi }
  :: d_step { gap -> job = job | gap; gap = 0 }
  :: !gap && n -> progress: shift()
  :: !gap && !n && !job -> break
  od
}
