/*
 * A position that is decided again may be cut into parts in other places. The store
 * was put back: an owner decides K positions again and publishes them, while a zombie
 * of the lost future publishes its own, each in order; the zombie may end anywhere, and
 * its records count once the watermark has passed them. The changes of a position are
 * three pieces, and each of the two cuts them in its way: not at all, x|y|z, xy|z or
 * x|yz. A reader that crashes at most ACTS times. Retention and takeovers are in
 * parts.pml.
 *
 * Rules, each with a switch that takes it away:
 *   OTHER_CUT  a part counts also behind the first part of another cut
 *   PREV_CUT   the same cut behind another Prev is another one
 */
#ifndef K
#define K 2
#endif
#ifndef ACTS
#define ACTS 1
#endif
#define OWNER 0
#define ZOMBIE 1
#define rec(f,w,t) ((f) << 3 | (w) << 2 | (t))
#define FR(q) ((q) >> 3)
#define WHO(q) (((q) >> 2) & 1)
#define PT(q) ((q) & 3)
#define bit(i) (1 << (i))
byte way[2];                            /* 0: not cut, 1: x|y|z, 2: xy|z, 3: x|yz */
#define last(w) (way[w] < 2 -> 2*way[w] : 1)
#define pieces(q) (way[WHO(q)] == 0 -> 7 : (way[WHO(q)] == 1 -> bit(PT(q)) : (way[WHO(q)] == 2 -> (PT(q) -> 4 : 3) : (PT(q) -> 6 : 1))))
byte log[6*K], le;
byte W;                                 /* decided again up to here */
byte pf[2], pp[2];                      /* owner, zombie: frame, part that is next */
byte acts = ACTS;

inline publish(w) {
  log[le] = rec(pf[w], w, pp[w]); le++;
  if :: pp[w] == last(w) -> pp[w] = 0; pf[w]++ :: else -> pp[w]++ fi
}

active proctype Publish() {
  do :: way[OWNER] < 3 -> way[OWNER]++ :: break od;
  do :: way[ZOMBIE] < 3 -> way[ZOMBIE]++ :: break od;
  do
  :: d_step { W < K -> W++ }
  :: d_step { pf[OWNER] < W -> publish(OWNER) }
  :: d_step { pf[ZOMBIE] < K -> publish(ZOMBIE) }
  :: d_step { pf[ZOMBIE] < K -> pf[ZOMBIE] = K; pp[ZOMBIE] = 0 }
  :: d_step { acts > 0 -> acts-- }
  :: acts == 0 && pf[OWNER] == K && pf[ZOMBIE] == K -> break
  od
}

byte eff[K], gone;                      /* the pieces of each position; bits of positions */
byte P, off;                            /* persisted: positions done, log_offset */
byte p, ti, half, hi, cut;              /* the reader: positions done, next of the log; inside a position: the next part, where its first part stands, its cut */
hidden byte j, n, in;
#define R log[ti]
#ifdef PREV_CUT
#define cutOf(q) (WHO(q) + 1)
#else
#define cutOf(q) way[WHO(q)]
#endif
#ifdef OTHER_CUT
#define other(q) false
#else
#define other(q) (cutOf(q) != cut)
#endif
#define counts(q) (WHO(q) == OWNER || FR(q) < W)
#define repeats(q) (FR(q) < p || PT(q) && (PT(q) != half || FR(q) != p || other(q)) || !PT(q) && half && FR(q) == p && cutOf(q) == cut)
#define follows(q) (counts(q) && !repeats(q) && FR(q) == p)
#define quiet (acts == 0 && pf[OWNER] == K && pf[ZOMBIE] == K && ti == le && P == K && off == le)

inline done() { p++; half = 0; hi = 0; cut = 0 }

/* The position is reported as gone: the zombie began another cut, of it or of one before it, amid the owner's parts. */
inline missing() {
  assert(way[OWNER] != way[ZOMBIE]);
  j = 0; n = 0; in = 0;
  do
  :: j < le && FR(log[j]) <= p ->
     if
     :: WHO(log[j]) == OWNER -> in = (PT(log[j]) == last(OWNER) -> 0 : FR(log[j]) + 1)
     :: WHO(log[j]) == ZOMBIE && PT(log[j]) == 0 && last(ZOMBIE) && in == FR(log[j]) + 1 -> n = 1
     :: else
     fi; j++
  :: j < le && FR(log[j]) > p -> j++
  :: else -> break
  od;
  assert(n); j = 0; n = 0; in = 0;
  gone = gone | bit(p); done()
}

active proctype Reader() {
  do
  :: d_step { acts > 0 -> acts--; p = P; ti = off; half = 0; hi = 0; cut = 0 }                                /* crash */
  :: d_step { ti < le && (!counts(R) || repeats(R)) -> ti++ }
  :: d_step { ti < le && follows(R) ->
     eff[p] = eff[p] | pieces(R);
     if :: PT(R) == 0 -> hi = ti; cut = cutOf(R) :: else fi;
     if
     :: PT(R) == last(WHO(R)) -> assert(eff[p] == 7); done()
     :: else -> half = PT(R) + 1
     fi;
     ti++ }
     /* a gap: what the outbox has comes, and what goes on from here is read first */
  :: d_step { ti < le && counts(R) && !repeats(R) && FR(R) > p && pf[OWNER] > p ->
     j = ti + 1;
     do :: j < le && !follows(log[j]) -> j++ :: else -> break od;
     if :: j < le -> ti++; j = 0 :: else -> missing() fi }
  :: d_step { ti == le && pf[OWNER] == K && p < K -> missing() }                                              /* or at the end */
  :: d_step { p > P || ti > off && half == 0 -> P = p; off = (half -> hi : ti);
     j = 0;
     do :: j < P -> assert((gone & bit(j)) || eff[j] == 7); j++ :: else -> break od; j = 0 }
  :: quiet -> break
  od
}
