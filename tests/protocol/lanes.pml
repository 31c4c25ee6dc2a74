/*
 * A service that is added: B comes by revision 1, while process 0 still knows revision 0 and reloads some
 * time, and process 1 knows revision 1. Every record changes A's view and, under revision 1, B's. A lane
 * of B without an entry in the row of positions begins at the highest position that the row has.
 *
 * Rules, each with a switch that takes it away:
 *   START_END    … not at the watermark of the takeover,
 *   ADOPT_END    nor, at a reload, at the watermark of that moment
 *   ADOPT_LATE   the lane is there before the first decision under the new revision
 *   NO_POSREV    positions are written under the active revision only
 */
#ifndef N
#define N 3
#endif
#ifndef ACTS
#define ACTS 2
#endif
#define bit(i) (1 << (i))
#define below(i) (bit(i) - 1)
byte W, rev, b, tok, PA, PB; bool hasB;      /* the store; b: records decided for B */
byte seen, acts = ACTS, assigned; bool over;
typedef P { bool on, lane, dirty; byte kn, tok, w, row, a, pb }
P p[2];
#define O p[d]
#define bound (O.tok == tok)
#define check assert(!hasB || (b & below(PB) & ~seen) == 0)
#ifdef NO_POSREV
#define inforce true
#else
#define inforce (O.kn == rev)
#endif
#define mayDecide (O.kn == rev)
inline reset() { O.on = false; O.lane = false; O.dirty = false; O.tok = 0; O.w = 0; O.row = 0; O.a = 0; O.pb = 0 }

proctype Work(byte d) {
  do
  :: d_step { !O.on && assigned == d && O.kn <= rev -> tok = (tok == 2*d + 1 -> 2*d + 2 : 2*d + 1); O.tok = tok; O.on = true; O.w = W; O.a = PA;
     O.row = (hasB && PB > PA -> PB : PA);
     if
     :: O.kn == 1 -> O.lane = true; O.dirty = true;
#ifdef START_END
        O.pb = (hasB -> PB : W)
#else
        O.pb = (hasB -> PB : O.row)
#endif
     :: else
     fi }
  :: d_step { O.on && O.kn == 0 && rev == 1 ->                                   /* reload */
     O.kn = 1;
#ifndef ADOPT_LATE
     O.lane = true; O.dirty = true;
#ifdef ADOPT_END
     O.pb = (hasB -> PB : O.w)
#else
     O.pb = (hasB -> PB : O.row)
#endif
#endif
     }
  :: d_step { !O.on && O.kn == 0 && rev == 1 -> O.kn = 1 }
#ifdef ADOPT_LATE
  :: d_step { O.on && O.kn == 1 && !O.lane -> O.lane = true; O.dirty = true; O.pb = (hasB -> PB : O.w) }
#endif
  :: d_step { O.on && bound && mayDecide && O.w == W && W < N -> if :: O.kn == 1 -> b = b | bit(W) :: else fi; W++; O.w = W }
  :: d_step { O.on && bound && O.a < W -> O.a++; O.dirty = true }
  :: d_step { O.on && bound && O.lane && O.pb < W -> seen = seen | (b & bit(O.pb)); O.pb++; O.dirty = true }
  :: d_step { O.on && O.dirty && (O.kn == 0 || O.lane) -> O.dirty = false;
     if
     :: bound && inforce -> PA = O.a; O.row = O.a;
        if :: O.lane -> hasB = true; PB = O.pb; O.row = (PB > PA -> PB : PA) :: else fi;
        check
     :: else -> reset()
     fi }
  :: d_step { O.on && (assigned != d || !bound) -> reset() }
  :: d_step { acts && O.on -> acts--; reset() }
  :: over -> break
  od
}
init {
  atomic { p[1].kn = 1; run Work(0); run Work(1) }
  do
  :: d_step { rev == 0 -> rev = 1 }
  :: d_step { acts -> acts--; assigned = 1 - assigned }
  :: d_step { acts -> acts-- }
  :: d_step { acts == 0 && rev == 1 && W == N && hasB && PA == N && PB == N -> over = true }; break
  od;
  assert((b & ~seen) == 0)
}
