/*
 * The cache of the owner of a partition: one entity, two owners, one store.
 * Record r of the inbox merges bit r; those in `del` delete, which leaves a
 * tombstone; those in `ctl` are control records: a purge, of a tombstone, or an
 * operator's reset. A decision computes from the cache, if the entity is in it,
 * and nothing is compared before its commit, which moves the watermark by
 * compare-and-swap. It must have computed from what the store has then.
 *
 * Rules, each with a switch that takes it away:
 *   OFFSET_ONLY    the watermark is compared by offset alone
 *   TOKEN_ONLY     by token alone
 *   NO_COMPARE     it is compared before the decision is computed, not by the commit
 *   KEEP_UNKNOWN   the cache is kept after a commit of unknown outcome
 *   KEEP_TAKEOVER  and when the partition was somebody else's meanwhile
 *   PURGE_BYPASS   tombstones are purged past the owner
 *   SWAP_BYPASS    an operator's write goes past the owner
 *   SAME_TOKEN     the owner purges between two records, and keeps its token
 *   PREFETCH       entities are loaded ahead, while a commit is under way
 *   NO_GENERATION  the inbox was made anew with other partitions: the first takeover
 *                  of the new one leaves the older owners of other partitions alone
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
byte del, ctl;
byte assigned, acts = ACTS;
#define OFF 0
#define ON  1
#define AGAIN 2
#define DONE 3                          /* computed, and not committed */
byte st[2], tok[2], next[2], cache[2], val[2]; bool has[2];
hidden byte x;
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
#ifdef NO_COMPARE
#define first holds
#define then true
#else
#define first true
#define then holds
#endif
/* What record r makes of the entity: a purge takes a tombstone away, a reset forgets what was seen. */
#define merged(e, r) (ctl & bit(r) -> ((e) == TOMB -> 0 : ((e) -> ((e) | UNKNOWN) : 0)) : (del & bit(r) -> TOMB : (((e) & ~TOMB) | bit(r))))

inline claim() {
  tok[d] = 0; x = 1;
  do :: x == s.tok || x == old.tok || x == tok[1-d] -> x++ :: else -> break od;
  s.tok = x; tok[d] = x; x = 0
}
inline forget() { has[d] = false; cache[d] = 0 }
inline commit() { assert(val[d] == s.ent); s.ent = merged(val[d], next[d]); s.W = next[d] + 1 }

proctype Owner(byte d) {
  do
  :: d_step { (st[d] == OFF || st[d] == AGAIN) && assigned == d ->
#ifndef KEEP_TAKEOVER
     if :: st[d] == OFF -> forget() :: else fi;
#endif
     claim(); next[d] = s.W; st[d] = ON }
  /* From the cache; else the watermark is locked, the entity loaded, and the commit follows at once. */
  :: d_step { st[d] == ON && next[d] < N && has[d] && first -> val[d] = cache[d]; st[d] = DONE }
  :: d_step { st[d] == ON && next[d] < N && !has[d] && holds -> val[d] = s.ent; commit();
     cache[d] = s.ent; has[d] = true; next[d]++; val[d] = 0 }
  :: d_step { st[d] == DONE && then -> commit();
     cache[d] = s.ent; has[d] = true; next[d]++; val[d] = 0; st[d] = ON }
#ifdef PREFETCH                         /* the entity is read while the commit is under way, of which it is not part */
  :: d_step { st[d] == ON && next[d] < N && !has[d] && holds -> cache[d] = s.ent; has[d] = true; val[d] = s.ent; commit(); next[d]++; val[d] = 0 }
#endif
  :: d_step { may && st[d] == DONE && then -> did;                             /* committed, the owner does not know */
     commit();
#ifdef KEEP_UNKNOWN
     cache[d] = val[d]; has[d] = true;
#else
     forget();
#endif
     val[d] = 0; st[d] = AGAIN }
  :: d_step { may && st[d] == DONE -> did;                                     /* not committed, likewise */
#ifdef KEEP_UNKNOWN
     cache[d] = merged(val[d], next[d]); has[d] = true;
#else
     forget();
#endif
     val[d] = 0; st[d] = AGAIN }
  :: d_step { (st[d] == ON || st[d] == DONE) && !holds -> st[d] = AGAIN; val[d] = 0; forget() }   /* fenced */
  :: d_step { has[d] -> forget() }                                              /* least recently used */
  :: d_step { assigned != d && st[d] != OFF && st[d] != DONE -> st[d] = OFF; next[d] = 0; tok[d] = 0;
#ifndef KEEP_TAKEOVER
     forget()
#endif
     }
#ifdef SAME_TOKEN
  :: d_step { st[d] == ON && holds && s.ent == TOMB -> s.ent = 0; if :: has[d] -> cache[d] = 0 :: else fi }
#endif
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
  /* The inbox is made anew with other partitions: the owner of another one, whose watermark is
   * not this, has the entity from now on, and writes it. */
  :: d_step { may && s.ent && s.ent < UNKNOWN -> did; s.ent = s.ent ^ 32;
#ifndef NO_GENERATION
     s.tok = 0
#endif
     }
#ifdef PURGE_BYPASS
  :: d_step { may && s.ent == TOMB -> did; s.ent = 0 }
#endif
#ifdef SWAP_BYPASS
  :: d_step { may && s.ent && s.ent != TOMB -> did; s.ent = s.ent | UNKNOWN }
#endif
  :: !may -> break
  od
}

init {
  atomic {
    if :: del = 0 :: del = 1 :: del = 2 :: del = 5 fi;
    if :: ctl = 0 :: ctl = 2 :: ctl = 4 :: ctl = 6 fi;
    ctl = ctl & (15 ^ del);
    run Owner(0); run Owner(1); run Others()
  }
}
