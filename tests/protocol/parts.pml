/*
 * Frames in parts: the changes of one inbox offset that pass the broker's limit are
 * PARTS records, each with the changes of other services. A reader that
 * crashes; who publishes, and what retention takes, is in publish.pml. ACTS is what
 * may happen in all: crashes, REPEAT (decide is taken over), CUT (retention); both if
 * neither is named.
 *
 * Rules, each with a switch that takes it away:
 *   PART_MOVES  the position moves with every part
 *   PART_BLIND  the last part counts for a reader that has not seen the others
 *   OFF_BLIND   log_offset may stand between the parts of a frame
 *   BEGIN_AGAIN the same first part once more begins the frame again (needs three parts)
 */
#ifndef K
#define K 2
#endif
#ifndef PARTS
#define PARTS 2
#endif
#ifndef ACTS
#define ACTS 4
#endif
byte eff[PARTS], gone;                  /* bits of frames */
byte P, off;                            /* persisted: frames done, log_offset */
byte p, ti, half, hi;                   /* the reader: frames done, next of the log, next part of a frame that it is inside, and where its first part stands */
bool on;
#define quiet (acts == 0 && published && on && ti == le && P == K && off == le)
#if !defined(REPEAT) && !defined(CUT)
#define REPEAT
#define CUT
#endif
#include "publish.pml"

hidden byte j, n;
#ifdef BEGIN_AGAIN
#define begins(r) true
#else
#define begins(r) (half == 0)
#endif
#define follows(r) (FR(r) == p && (PT(r) == 0 -> begins(r) : PT(r) == half))
#define here (on && lo <= ti && ti < le)

inline later() {                        /* does the log go on from here behind this record? */
  j = ti + 1;
  do :: j < le && !follows(log[j]) -> j++ :: else -> break od
}

inline missing() {                      /* the frame is reported as gone: the log has not all of it */
  j = lo; n = 0;
  do :: j < le -> if :: log[j] == p*PARTS + n -> n++; assert(n < PARTS) :: else fi; j++ :: else -> break od;
  j = 0; n = 0; gone = gone | bit(p); p++; half = 0; hi = 0
}

active proctype Reader() {
  do
  :: d_step { !on -> on = true; p = P; ti = (off > lo -> off : lo); half = 0; hi = 0 }
  :: d_step { may && on -> did; on = false; p = 0; ti = 0; half = 0; hi = 0 }                                 /* crash */
  :: d_step { on && ti < lo -> ti = lo }
  :: d_step { here && follows(log[ti]) ->
     eff[PT(log[ti])] = eff[PT(log[ti])] | bit(p);
     if
#ifdef PART_MOVES
     :: true -> p++
#else
     :: PT(log[ti]) == PARTS - 1 -> p++; half = 0; hi = 0
     :: else -> if :: PT(log[ti]) == 0 -> hi = ti :: else fi; half = PT(log[ti]) + 1
#endif
     fi;
     ti++ }
#ifdef PART_BLIND
  :: d_step { here && !follows(log[ti]) && FR(log[ti]) == p && PT(log[ti]) == PARTS - 1 ->
     eff[PARTS-1] = eff[PARTS-1] | bit(p); p++; half = 0; hi = 0; ti++ }
#define counts(r) (FR(r) == p && PT(r) == PARTS - 1)
#else
#define counts(r) false
#endif
     /* a repetition, or a part of a frame that was not begun */
  :: d_step { here && !follows(log[ti]) && !counts(log[ti]) && (FR(log[ti]) <= p || PT(log[ti])) -> ti++ }
     /* a gap shows at a first part: what the outbox has comes, and what goes on from here is read first */
  :: d_step { here && FR(log[ti]) > p && PT(log[ti]) == 0 && box > p*PARTS + half ->
     later();
     if :: j < le -> ti++; j = 0 :: else -> missing() fi }
  :: d_step { on && ti == le && box == ALL && p < K -> missing() }                                           /* or at the end */
  :: d_step { on && (p > P || ti > off && half == 0
#ifdef OFF_BLIND
       || ti > off
#endif
       ) -> P = p;
#ifdef OFF_BLIND
     off = ti;
#else
     off = (half -> hi : ti);
#endif
     j = 0;
     do
     :: j < P ->
        n = 0;
        do :: n < PARTS -> assert((gone & bit(j)) || (eff[n] & bit(j))); n++ :: else -> break od; n = 0;
        j++
     :: else -> break
     od; j = 0 }
  :: quiet -> break
  od
}
