/*
 * Frames in parts: the changes of one inbox offset that pass the broker's limit are two
 * records, the first with A's changes, the second with B's. K frames, an owner
 * and a zombie that publish them, each in order and each from any frame on that
 * may not be published yet; a reader that crashes; retention.
 *
 * Rules, each with a switch that takes it away:
 *   PART_MOVES  the position moves with every part
 *   PART_BLIND  the last part counts for a reader that has not seen the first
 *   OFF_BLIND   log_offset may stand between the parts of a frame
 */
#ifndef K
#define K 2
#endif
#ifndef ACTS
#define ACTS 4
#endif
#define MAXLOG (8*K + 12)
byte log[MAXLOG], lo, le;               /* frame * 2 + part */
byte pub[2];                            /* owner, zombie: records published */

byte eff[2], gone;                      /* bits of frames */
byte P, off;                            /* persisted: frames done, log_offset */
byte p, ti, half, hi;                   /* the reader: frames done, next of the log, frame + 1 of which it has the first part, and where that stands */
bool on; byte acts = ACTS;
hidden byte j;
#define bit(i) (1 << (i))
#define may (acts > 0)
#define did acts--
#define FR (log[ti] / 2)
#define LAST (log[ti] & 1)
#define quiet (acts == 0 && pub[0] == 2*K && pub[1] == 0 && on && ti == le && P == K && off == le)

active proctype Publish() {
  do
  :: d_step { pub[0] < 2*K && le < MAXLOG -> log[le] = pub[0]; le++; pub[0]++ }
  :: d_step { pub[1] && pub[1] < 2*K && le < MAXLOG -> log[le] = pub[1]; le++; pub[1] = (pub[1] + 1 == 2*K -> 0 : pub[1] + 1) }
  :: d_step { pub[1] -> pub[1] = 0 }
  :: d_step { may && pub[0] -> did; pub[1] = (pub[0] == 2*K -> 0 : pub[0]); pub[0] = (pub[0] - 1) & 254 }  /* take-over: the last frame again, whole */
  :: d_step { may && lo < le -> did; log[lo] = 0; lo++ }                                                      /* retention */
  :: d_step { may -> did }
  :: quiet -> break
  od
}

inline later(q) {                       /* is frame q, or its first part, still to come in the log? */
  j = ti;
  do :: j < le && log[j] != 2*(q) -> j++ :: else -> break od
}

active proctype Reader() {
  do
  :: d_step { !on -> on = true; p = P; ti = (off > lo -> off : lo); half = 0; hi = 0 }
  :: d_step { may && on -> did; on = false; p = 0; ti = 0; half = 0; hi = 0 }                                 /* crash */
  :: d_step { on && ti < lo -> ti = lo }
  :: d_step { on && lo <= ti && ti < le && FR < p -> ti++ }
  :: d_step { on && lo <= ti && ti < le && FR == p && !LAST -> eff[0] = eff[0] | bit(FR);
#ifdef PART_MOVES
     p++;
#else
     half = p + 1; hi = ti;
#endif
     ti++ }
  :: d_step { on && lo <= ti && ti < le && FR == p && LAST ->
#ifdef PART_BLIND
     eff[1] = eff[1] | bit(FR); p++; half = 0; hi = 0; ti++
#else
     later(p);
     if
     :: half == p + 1 -> eff[1] = eff[1] | bit(FR); p++; half = 0; hi = 0; ti++
     :: half != p + 1 && j < le -> ti++                                                                        /* it comes again, whole */
     :: else ->                                                                                                /* a gap: its first part is gone */
        j = lo; do :: j < le -> assert(log[j] != 2*p); j++ :: else -> break od;
        gone = gone | bit(p); eff[1] = eff[1] | bit(p); p++; ti++
     fi;
     j = 0
#endif
     }
  :: d_step { on && lo <= ti && ti < le && FR > p -> gone = gone | bit(p); p++; half = 0; hi = 0 }             /* a gap */
  :: d_step { on && ti == le && pub[0] == 2*K && p < K -> gone = gone | bit(p); p++; half = 0; hi = 0 }        /* a gap at the end */
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
     do :: j < P -> assert((gone & bit(j)) || (eff[0] & eff[1] & bit(j))); j++ :: else -> break od; j = 0 }
  :: quiet -> break
  od
}
