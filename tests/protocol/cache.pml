/*
 * The cache of the owner of a partition: one entity, two owners, one store.
 * Record r of the inbox merges bit r; those in `del` delete, which leaves a
 * tombstone. A decision computes from the cache, if the entity is in it, and
 * commits by compare-and-swap. It must have computed from what the store had.
 *
 * Rules, each with a switch that takes it away:
 *   OFFSET_ONLY    the watermark is compared by offset alone
 *   TOKEN_ONLY     by token alone
 *   KEEP_UNKNOWN   the cache is kept after a commit of unknown outcome
 *   KEEP_TAKEOVER  and when the partition was somebody else's meanwhile
 *   PURGE_BYPASS   tombstones are purged past the owner
 *   SWAP_BYPASS    an operator's write goes past the owner
 *   SAME_TOKEN     the owner writes without moving the offset, and keeps its token
 *   PREFETCH       entities are loaded ahead, while a commit is under way
 */
#ifndef N
#define N 4
#endif
#ifndef ACTS
#define ACTS 4
#endif
#define TOMB    128
#define UNKNOWN 64
#define bit(i) (1 << (i))
typedef Store { byte W, tok, ent }
Store s, old; bool kept;
byte del;
byte assigned, acts = ACTS;
#define OFF 0
#define ON  1
#define AGAIN 2
#define WAIT 3                          /* a commit is under way */
byte st[2], tok[2], next[2], cache[2]; bool has[2];
hidden byte x, v;
#define may (acts > 0)
#define did acts--

#ifdef OFFSET_ONLY
#define holds (s.W == next[d])
#else
#ifdef TOKEN_ONLY
#define holds (s.tok == tok[d])
#else
#define holds (s.W == next[d] && s.tok == tok[d])
#endif
#endif
#define merged(e, r) (del & bit(r) -> TOMB : (((e) & ~TOMB) | bit(r)))

inline claim() {
  tok[d] = 0; x = 1;
  do :: x == s.tok || x == old.tok || x == tok[1-d] -> x++ :: else -> break od;
  s.tok = x; tok[d] = x; x = 0
}
inline forget() { has[d] = false; cache[d] = 0 }
inline compute() { v = (has[d] -> cache[d] : s.ent) }
inline commit() { assert(v == s.ent); s.ent = merged(v, next[d]); s.W = next[d] + 1 }

proctype Owner(byte d) {
  do
  :: d_step { (st[d] == OFF || st[d] == AGAIN) && assigned == d ->
#ifndef KEEP_TAKEOVER
     if :: st[d] == OFF -> forget() :: else fi;
#endif
     claim(); next[d] = s.W; st[d] = ON }
  :: d_step { st[d] == ON && next[d] < N && holds -> compute(); commit(); cache[d] = s.ent; has[d] = true; next[d]++; v = 0 }
#ifdef PREFETCH                         /* the commit takes its time, and the entity is read meanwhile */
  :: d_step { st[d] == ON && next[d] < N && holds -> st[d] = WAIT }
  :: d_step { st[d] == WAIT && !has[d] -> cache[d] = s.ent; has[d] = true }
  :: d_step { st[d] == WAIT && holds -> v = s.ent; commit(); next[d]++; v = 0; st[d] = ON }
  :: d_step { st[d] == WAIT && !holds -> st[d] = AGAIN; forget() }
#endif
  :: d_step { may && st[d] == ON && next[d] < N && holds -> did;               /* committed, the owner does not know */
     compute(); commit();
#ifdef KEEP_UNKNOWN
     cache[d] = v; has[d] = true;
#else
     forget();
#endif
     v = 0; st[d] = AGAIN }
  :: d_step { may && st[d] == ON && next[d] < N -> did;                        /* not committed, likewise */
#ifdef KEEP_UNKNOWN
     compute(); cache[d] = merged(v, next[d]); has[d] = true; v = 0;
#else
     forget();
#endif
     st[d] = AGAIN }
  :: d_step { st[d] == ON && !holds -> st[d] = AGAIN; forget() }               /* fenced */
  :: d_step { has[d] -> forget() }                                              /* least recently used */
  :: d_step { assigned != d && st[d] != OFF -> st[d] = OFF; next[d] = 0; tok[d] = 0;
#ifndef KEEP_TAKEOVER
     forget()
#endif
     }
  /* Through the owner: under its token, and in its cache. */
  :: d_step { st[d] == ON && holds && s.ent == TOMB -> s.ent = 0; if :: has[d] -> cache[d] = 0 :: else fi;
#ifndef SAME_TOKEN
     claim()                            /* the offset does not tell that something was written */
#endif
     }
  :: st[d] == ON && next[d] >= N && holds && assigned == d && !may -> break
  :: st[d] == OFF && assigned != d && !may -> break
  od
}

proctype Others() {
  do
  :: d_step { may -> did }
  :: d_step { may -> did; assigned = 1 - assigned }
  :: d_step { may && !kept && s.tok -> did; kept = true; old.W = s.W; old.tok = s.tok; old.ent = s.ent }
  :: d_step { may && kept -> did; s.W = old.W; s.tok = old.tok; s.ent = old.ent }
  :: d_step { may && s.ent == TOMB -> did; s.ent = 0;
#ifndef PURGE_BYPASS
     s.tok = 0                                                                  /* or it takes the token away */
#endif
     }
  :: d_step { may && s.ent -> did; s.ent = UNKNOWN;
#ifndef SWAP_BYPASS
     s.tok = 0
#endif
     }
  :: !may -> break
  od
}

init {
  atomic {
    if :: del = 0 :: del = 1 :: del = 2 :: del = 5 fi;
    run Owner(0); run Owner(1); run Others()
  }
}
