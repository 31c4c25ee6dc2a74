/*
 * What deliver.pml stands on: the store with its row, the log, decide, the
 * adversary, and what an owner does with its row. deliver.pml tells the rules.
 */
#ifndef N
#define N 2                 /* events */
#endif
#ifndef CTL
#define CTL 2               /* room for control records behind them */
#endif
#ifndef ACTS
#define ACTS 1
#endif
#define MAXIN  (N + CTL)    /* at most 6 */
#ifndef MAXLOG
#define MAXLOG (2*MAXIN + 2)    /* at most 12 */
#endif
#define BOX    2
#define A 0
#define B 1
#ifdef BOTH
#define fails(c) true
#else
#define fails(c) ((c) == B)
#endif
#ifdef ADD
#define FIRST 0
#else
#define FIRST 1
#endif
#define bit(i)     (1 << (i))
#define range(a,b) ((bit(b) - 1) & ~(bit(a) - 1))
#define hi(m) ((m)&32 -> 6 : ((m)&16 -> 5 : ((m)&8 -> 4 : ((m)&4 -> 3 : ((m)&2 -> 2 : ((m)&1))))))
#define lw(m) ((m)&1 -> 1 : ((m)&2 -> 2 : ((m)&4 -> 3 : ((m)&8 -> 4 : ((m)&16 -> 5 : ((m)&32 -> 6 : 0))))))
#define min(a,b) ((a) < (b) -> (a) : (b))
#define max(a,b) ((a) > (b) -> (a) : (b))

/* A frame: from, to, prev, revision. Odd revisions have B. */
#define frame(f,t,p,r) ((f) | (t) << 3 | (p) << 6 | (r) << 9)
#define FR(f) ((f) & 7)
#define TO(f) (((f) >> 3) & 7)
#define PV(f) (((f) >> 6) & 7)
#define RV(f) (((f) >> 9) & 3)

byte rec[2];                /* per service: the records of the inbox that change its view */
byte end = N;
typedef Store {
  byte W, X;                /* watermark row: next offset, `to` of the last frame */
  byte rev, act[4];         /* active revision, and the watermark when each was activated */
  byte bm;                  /* the dam: what was decided for B. For A: rec[A] below W */
  short box[BOX]; byte nb;  /* outbox */
  byte lt[2];               /* dead letters: versions */
  byte dn, doff, tok;       /* the row: live, its log offset, token, */
  bool ses;                 /*   whether it was written in this session of the server, */
  byte hn[2], ho[2]         /*   behind: next + 1 (0: is not), log offset */
}
Store s, old; bool kept;
short log[MAXLOG]; byte lo, le;           /* what retention left, end */
byte pubd;                                /* of the outbox, published by this owner */
short z[BOX]; byte zn;                    /* a zombie's publishes on their way */

byte seen[2], gone[2];      /* log sink: versions; reported as gap */
byte at[2], best[2], top[2]; bool late[2];/* state sink: version now; newest by owners; newest ever; taken back by a zombie */
bool up[2] = true, back;
short foregone;             /* records that were passed over as a lost future's: nobody looks for a change there again */
byte assigned, tok[2]; bool on[2], over;
typedef Owner {             /* what a deliverer keeps in memory */
  byte ti_, bi_, tn_;       /* tail: next of the log, where what is in hand begins, position handed out */
  byte end_;                /* end of the log at the takeover */
  byte ahead_, pb_, fresh_; /* frames in hand; B's changes in them; changes that nobody had in hand before */
  byte done_[2]; bool live_[2];
  byte ci_, walk_;          /* catch-up reader: next of the log, services that it feeds */
  byte cof_[2];             /* where it starts for a service */
  byte kr_;                 /* revision of this process */
  byte look_, sus_;         /* watermark + 1 as read for the next frame; up to where a gap is suspected */
#ifdef NO_SESSION
  byte wm_;                 /* highest watermark under which it left a change out */
#endif
#ifdef LETTER_LATE
  byte owed_[2]             /* letters that are not stored yet */
#endif
}
Owner o[2];
#define ti    o[d].ti_
#define bi    o[d].bi_
#define tn    o[d].tn_
#define end0  o[d].end_
#define ahead o[d].ahead_
#define pb    o[d].pb_
#define fresh o[d].fresh_
#define done  o[d].done_
#define live  o[d].live_
#define ci    o[d].ci_
#define walk  o[d].walk_
#define cof   o[d].cof_
#define kr    o[d].kr_
#define look  o[d].look_
#define sus   o[d].sus_
#define wm    o[d].wm_
#define owed  o[d].owed_
byte acts = ACTS;
#define may (acts > 0)
#define did acts--
hidden byte i, j, m, x;

#define hasB(r)    ((r) & 1)
#define serves(c,r) ((c) == A || hasB(r))
#define decided(c) ((c) == A -> rec[A] & range(0, s.W) : s.bm)
#define newest(c)  hi(decided(c))
#define has(f,c)   (rec[c] & range(FR(f), TO(f)) & (serves(c, RV(f)) -> 255 : 0))

/* Not of this store's history: decided by a future that it lost. */
#ifdef NO_FUTURE
#define above(n,w) false
#else
#define above(n,w) ((n) > (w))
#endif
#if defined(NO_REVISION) || !(defined(ADD) || defined(REMOVE))
#define foreign(f) false
#else
#define foreign(f) (RV(f) > s.rev || FR(f) < s.act[RV(f)] || RV(f) < s.rev && TO(f) > s.act[RV(f) + 1])
#endif
#define lost(f) (above(TO(f), s.W) || foreign(f))

/* The row says nothing that is not so: the newest change below a position took
   effect or is a dead letter; a log sink has all of them but those reported. */
inline honest(c) {
  x = (s.hn[c] -> s.hn[c] - 1 : s.dn);
#ifdef LOG
  assert(!serves(c, s.rev) || (decided(c) & range(0, x) & ~(seen[c] | gone[c] | s.lt[c])) == 0);
#else
  assert(!serves(c, s.rev) || newest(c) == 0 || newest(c) > x || top[c] >= newest(c) || (s.lt[c] & bit(newest(c) - 1)));
#endif
  x = 0
}
inline check() { honest(A); honest(B) }

#ifdef NO_SESSION
#define present true
#else
#define present s.ses
#endif
/* A restored store does not bind who has not heard of it; a removed service is promised nothing. */
#define bound(c) (tok[d] == s.tok && s.ses && serves(c, s.rev))

/* Change v (from 1) arrives at sink c. */
inline effect(d, c, v) {
  assert(kr < 3 || (c) == A || (v) > s.act[3]);                   /* another service's, by number */
#ifdef LOG
  if
  :: seen[c] & bit(v - 1)                                       /* the same key once more */
  :: else ->
     assert(!bound(c) || (decided(c) & range(0, v - 1) & ~(seen[c] | gone[c] | s.lt[c])) == 0);
     seen[c] = seen[c] | bit(v - 1)
  fi
#else
#ifdef GUARDED
  if :: v > at[c] -> at[c] = v :: else fi;
#else
  if
  :: bound(c) -> assert(v >= best[c]);
     best[c] = v; late[c] = false
  :: else -> late[c] = v < top[c]                               /* a zombie */
  fi;
  at[c] = v;
#endif
  top[c] = max(top[c], v)
#endif
}

inline append(f) { log[le] = f; le++ }
inline forget() { s.box[0] = s.box[1]; s.box[1] = 0; s.nb--; pubd-- }

inline decide(n) {
#ifdef NO_DISCARD
  do :: pubd -> forget() :: else -> break od;
#endif
  m = (rec[A] | (hasB(s.rev) -> rec[B] : 0)) & range(s.W, s.W + n);
  if
  :: m -> s.box[s.nb] = frame(s.W, s.W + n, s.X, s.rev); s.nb++; s.X = s.W + n
  :: else                                                       /* no changes, no frame */
  fi;
  if :: hasB(s.rev) -> s.bm = s.bm | (rec[B] & range(s.W, s.W + n)) :: else fi;
  s.W = s.W + n; m = 0;
  check()
}
#ifdef NO_DISCARD
#define room (s.nb - pubd < BOX)
#define published (s.nb == pubd)
#else
#define room (s.nb < BOX)
#define published (s.nb == 0)
#endif

inline inflight() {                     /* what the old owner had handed to its producer */
  zn = 0; i = pubd;
  do :: i < s.nb -> z[zn] = s.box[i]; zn++; i++ :: else -> break od;
  i = zn; do :: i < BOX -> z[i] = 0; i++ :: else -> break od;
  i = 0; pubd = 0
}

inline copy(to, from) {
  to.W = from.W; to.X = from.X; to.rev = from.rev; to.bm = from.bm; to.nb = from.nb;
  to.act[1] = from.act[1]; to.act[2] = from.act[2]; to.act[3] = from.act[3];
  to.box[0] = from.box[0]; to.box[1] = from.box[1]; to.lt[0] = from.lt[0]; to.lt[1] = from.lt[1];
  to.dn = from.dn; to.doff = from.doff; to.tok = from.tok;
  to.hn[0] = from.hn[0]; to.hn[1] = from.hn[1]; to.ho[0] = from.ho[0]; to.ho[1] = from.ho[1]
}

#define settled(c) (s.hn[c] == 0 || serves(c, s.rev) && !up[c])
#define quiet (acts == 0 && s.W == end && published && zn == 0 && on[assigned] && !on[1-assigned] && \
  tok[assigned] == s.tok && present && s.dn >= s.X && s.doff >= le && settled(A) && settled(B))

proctype Decide() {
  do
  :: d_step { s.W < end && room -> decide(1) }
  :: d_step { s.W + 1 < end && room -> decide(2) }
  :: d_step { pubd < s.nb && le < MAXLOG -> append(s.box[pubd]); pubd++ }
#ifndef NO_DISCARD
  :: d_step { pubd -> forget() }
#endif
  :: d_step { zn && le < MAXLOG -> append(z[0]); z[0] = z[1]; z[1] = 0; zn-- }
  :: d_step { zn -> zn = 0; z[0] = 0; z[1] = 0 }
  :: over -> break
  od
}

/* An activation, under the lock of the watermarks. */
inline activate() {
  s.rev++; s.act[s.rev] = s.W;
  if
  :: !hasB(s.rev) ->
#ifndef KEEP_ENTRY
     s.hn[B] = 0; s.ho[B] = 0;
#endif
     s.bm = 0; s.lt[B] = 0
  :: else -> seen[B] = 0; gone[B] = 0; at[B] = 0; best[B] = 0; top[B] = 0; late[B] = false
  fi
}

proctype Adversary() {
  do
  :: d_step { may -> did }                                                      /* nothing */
#ifdef MOVE
  :: d_step { may -> did; assigned = 1 - assigned }
#endif
#ifdef REPEAT
  :: d_step { may && s.nb -> did; inflight() }                                  /* takeover of decide */
#endif
#ifdef CUT
  /* Retention, while there is room for what it makes the repair ask for. */
  :: d_step { may && lo < le && end + 2 <= MAXIN -> did; log[lo] = 0; lo++ }
  :: d_step { may && lo < le && end + 2 <= MAXIN -> did; do :: lo < le -> log[lo] = 0; lo++ :: else -> break od; i = 0 }
#endif
#ifdef FAIL
  :: d_step { may && up[B] -> did; up[B] = false }
  :: d_step { !up[B] -> up[B] = true }
#endif
#ifdef BOTH
  :: d_step { may && up[A] -> did; up[A] = false }
  :: d_step { !up[A] -> up[A] = true }
#endif
#ifdef ADD
  :: d_step { s.rev == 0 -> activate() }
#endif
#ifdef REMOVE
  :: d_step { s.rev == 1 -> activate() }
#endif
#ifdef REUSE
  :: d_step { s.rev == 2 -> activate() }
#endif
#ifdef RESTORE
  :: d_step { may && !kept && s.tok -> did; kept = true; copy(old, s) }
  :: d_step { may && kept -> did; inflight(); copy(s, old); s.ses = false; check();
     back = true; best[A] = 0; best[B] = 0 }                                    /* the dam does not know any more what was sent */
#endif
  :: d_step { quiet -> over = true }; break
  od
}

/* A token that nobody knows any more may stand for a new one. */
inline claim() {
  tok[d] = 0; x = 1;
  do :: x == s.tok || x == old.tok || x == tok[1-d] -> x++ :: else -> break od;
  s.tok = x; tok[d] = x; s.ses = true; x = 0
}
#ifdef NO_POSREV
#define inforce true
#else
#define inforce (kr == s.rev)
#endif
#if defined(NO_SESSION) && !defined(NO_BACK)
#define notBack (s.W >= wm)
#else
#define notBack true                    /* only a restore takes it back, and that ends the session */
#endif
#ifdef NO_TOKEN
#define holds (inforce && notBack)
#else
#define holds (tok[d] == s.tok && present && inforce && notBack)
#endif
#ifdef OLD_PROCESS
#define mine(f) true
#else
#define mine(f) (RV(f) <= kr)
#endif
#ifdef NO_PREV
#define gapAt(p,f) false
#else
#define gapAt(p,f) (PV(f) > (p))
#endif

inline reset() {
  on[d] = false; tok[d] = 0; bi = 0; tn = 0; kr = 0; end0 = 0; ahead = 0; pb = 0; fresh = 0; look = 0; sus = 0;
  ci = 0; walk = 0; cof[A] = 0; cof[B] = 0; done[A] = 0; done[B] = 0; live[A] = false; live[B] = false;
#ifndef NO_REREAD
  ti = 0;
#endif
#ifdef NO_SESSION
  wm = 0;
#endif
#ifdef LETTER_LATE
  owed[A] = 0; owed[B] = 0;
#endif
  x = 0; m = 0
}

#define lag(c)   (live[c] && done[c] < tn)
#define lowest   min((live[A] -> done[A] : tn), (live[B] -> done[B] : tn))
inline level() { if :: !lag(A) && !lag(B) -> ahead = 0; bi = ti; pb = 0; fresh = 0 :: else fi; x = 0 }

/* The row is swapped whole, or nothing is written. */
#ifdef NO_ABOVE
#define passes false
#else
#define passes (lowest > s.W || !live[A] && done[A] > s.W || !live[B] && done[B] > s.W)
#endif
#define offset(c) (walk & bit(c) -> ci : cof[c])
inline swap(renews) {
  if
  :: holds && !passes ->
     s.dn = lowest; s.doff = (s.dn == tn -> ti : bi);
     s.hn[A] = (live[A] -> 0 : done[A] + 1); s.ho[A] = (live[A] -> 0 : offset(A));
     s.hn[B] = (live[B] -> 0 : done[B] + 1); s.ho[B] = (live[B] -> 0 : offset(B));
     if :: renews -> claim() :: else fi;
     check()
  :: else -> reset()
  fi
}
#ifdef NO_RENEW
#define SETS  false
#define EVERY false
#else
#define SETS  true
#ifdef RENEW_SETS
#define EVERY false
#else
#define EVERY true
#endif
#endif

/* Does a record of those behind `from` go on from position p? */
#define goes(k,from,p) ((from) <= (k) && (k) < le && !lost(log[k]) && mine(log[k]) && PV(log[k]) <= (p) && TO(log[k]) > (p))
#ifdef GAP_BLIND
#define some(from,p) false
#else
#define some(from,p) (goes(0,from,p) || goes(1,from,p) || goes(2,from,p) || goes(3,from,p) || goes(4,from,p) || goes(5,from,p) || \
  (MAXLOG > 6 && goes(6,from,p)) || (MAXLOG > 7 && goes(7,from,p)) || (MAXLOG > 8 && goes(8,from,p)) || \
  (MAXLOG > 9 && goes(9,from,p)) || (MAXLOG > 10 && goes(10,from,p)) || (MAXLOG > 11 && goes(11,from,p)))
#endif
inline linked(from, p) {                /* x: which, from 1 */
  x = from;
  do :: !goes(x, from, p) -> x++ :: else -> break od;
  x++
}

/* The outbox holds a frame that goes on from position p: it comes. */
#ifdef NO_BOX
#define boxed(p) false
#else
#define boxed(p) (s.nb && PV(s.box[0]) <= (p) && TO(s.box[0]) > (p) || s.nb == 2 && PV(s.box[1]) <= (p) && TO(s.box[1]) > (p))
#endif
/* The newest change that a service was promised is in the gap up to g: the
   position waits until a newer one was decided instead. */
#define asked(c) (rec[c] & range(max(s.W, N), end))
#define missing(c,g) (serves(c, s.rev) && newest(c) > done[c] && newest(c) <= (g) && !(s.lt[c] & bit(newest(c) - 1)))
#ifdef GAP_SILENT
#define blocks(c,g) false
#else
#ifdef GAP_NOWAIT
#define blocks(c,g) (missing(c,g) && !asked(c))
#else
#define blocks(c,g) missing(c,g)
#endif
#endif
inline ask(c) {
  if :: end == N || end == s.W -> end++ :: else fi;       /* one control record may name several services */
  rec[c] = rec[c] | bit(end - 1)
}
#define mayAsk(c,g) (blocks(c,g) && !asked(c) && ((end > N && end > s.W) || end < MAXIN))

/* Service c passes a gap up to g: what is missing is reported, and really missing. */
inline pass(c, g) {
  m = decided(c) & range(done[c], g) & ~(seen[c] | s.lt[c]);
  j = lo;
  do :: j < le -> assert(lost(log[j]) || (foregone & bit(j)) || PV(log[j]) > done[c] || (has(log[j], c) & m) == 0); j++ :: else -> break od;
  assert(!(s.nb && PV(s.box[0]) <= done[c] && (has(s.box[0], c) & m)));
  j = 0; gone[c] = gone[c] | m; done[c] = g; m = 0
}
#define held(g)    (live[A] && blocks(A, g) || live[B] && blocks(B, g))
#define asking(g)  (live[A] && mayAsk(A, g) || live[B] && mayAsk(B, g))
hidden byte g_;
/* The repair, for all that are live. */
inline repair(g) {
  g_ = g;
  if
  :: asking(g_) ->
     if :: live[A] && mayAsk(A, g_) -> ask(A) :: else fi;
     if :: live[B] && mayAsk(B, g_) -> ask(B) :: else fi
  :: else ->
     if
     :: holds && g_ <= s.W -> if :: live[A] -> pass(A, g_) :: else fi; if :: live[B] -> pass(B, g_) :: else fi;
        tn = g_; sus = 0; level(); swap(EVERY)
     :: else -> reset()
     fi
  fi;
  g_ = 0
}

/* Worth while for a state sink without guard? What may have been in hand before
   only if it is the newest. */
#if defined(LOG) || defined(GUARDED) || defined(NO_NEWEST)
#define worth(v,c,isnew) true
#else
#define worth(v,c,isnew) ((isnew) || (v) >= newest(c))
#endif
#ifdef NEWEST_TAKEOVER_ONLY
#define freshAt(k) ((k) >= end0)
#else
#define freshAt(k) false
#endif
inline leave() {
#ifdef NO_SESSION
  wm = max(wm, s.W)
#else
  skip
#endif
}
/* With two letters a letter is stored before the position that passes its change. */
inline letter(c, v) {
#ifdef LETTER_LATE
  owed[c] = owed[c] | bit(v - 1)
#else
  s.lt[c] = s.lt[c] | bit(v - 1)
#endif
}

#define F        log[ti]
#define G        log[ci]
#define here     (on[d] && lo <= ti && ti < le)
#define todo(c)  ((c) == A -> rec[A] & range(done[A], tn) : pb & range(done[B], tn))
#define ends     (s.nb -> PV(s.box[0]) : s.X)

inline next() {
  ti++; sus = 0;
#ifndef LOOK_LATE
  look = 0
#endif
}

/* The tail takes a frame, record k of the log, and hands it out. */
inline take(f, k) {
#ifdef SKIP_WHOLE
  m = lw(has(f, A)); if :: live[A] && FR(f) < done[A] && m -> effect(d, A, m) :: else fi; m = 0;
#endif
  if :: hasB(kr) -> pb = pb | (has(f, B) & range(tn, TO(f))) :: else fi;
  if :: (k) >= end0 -> fresh = fresh | range(FR(f), TO(f)) :: else fi;
  tn = TO(f); ahead++
}
