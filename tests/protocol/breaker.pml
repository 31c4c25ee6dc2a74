/*
 * The breaker of a target: two services share it. While it takes no connection, one of
 * them at a time tries, when the time of the next probe has come; whoever comes first takes that time and
 * moves it on. A service may have nothing to send for a while, be paused or killed in the middle of a probe.
 *
 * Asserted: at most one attempt in a period while the target is down; both services send in the end.
 *
 * Rules, each with a switch that takes it away:
 *   HOLDER       a probe is a time, not a holder: one that dies in it holds up nobody
 *   FIRST_ONLY   any service may probe, not only the one that found the target down
 *   BOTH_PROBE   the time moves on when a probe begins, not when it ends
 */
#ifdef HOLDER
#define FREE (holder == 2)
#else
#define FREE true
#endif
#ifdef FIRST_ONLY
#define MINE (first == d)
#else
#define MINE true
#endif
#define A 0
#define B 1
byte want[2] = 1;               /* changes to send */
bool open, up, flying[2], paused[2]; byte holder = 2, first = 2, probes, acts = 3;
bool due = true, over;          /* the time of the next probe has come */

proctype Service(byte d) {
  do
  :: d_step { want[d] && !paused[d] && !flying[d] && !open -> flying[d] = true }                     /* it seems to work */
  :: d_step { want[d] && !paused[d] && !flying[d] && open && due && FREE && MINE -> flying[d] = true;
#ifdef HOLDER
     holder = d;
#endif
     probes++; assert(probes <= 1);
#ifndef BOTH_PROBE
     due = false
#endif
     }
  :: d_step { flying[d] && up -> flying[d] = false; want[d]--; open = false; due = true; probes = 0; holder = 2; first = 2 }
  :: d_step { flying[d] && !up -> flying[d] = false;
     if :: !open -> open = true; due = false; first = d :: else fi;
#ifdef BOTH_PROBE
     due = false;
#endif
     if :: holder == d -> holder = 2 :: else fi }
  :: d_step { acts && flying[d] -> acts--; flying[d] = false }                                       /* killed, or cancelled */
  :: d_step { acts && !paused[d] && !paused[1-d] && want[1-d] -> acts--; paused[d] = true }
  :: d_step { paused[d] && !want[1-d] -> paused[d] = false }                                         /* an operator resumes it, some time */
  :: over -> break
  od
}
init {
  atomic { run Service(A); run Service(B) }
  do
  :: d_step { !due && open && up + acts + want[A] + want[B] > 0 -> due = true; probes = 0 }          /* time passes */
  :: d_step { !up -> up = true }
  :: d_step { acts && up -> acts--; up = false }
  :: d_step { acts -> acts-- }
  :: d_step { want[A] == 0 && want[B] == 0 -> over = true }; break
  od
}
