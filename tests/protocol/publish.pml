/*
 * What parts.pml and join.pml stand on: K frames of PARTS records in one log, an owner
 * that publishes them and a zombie that goes on where it was, each in order; an owner
 * that takes over publishes again what the outbox still has; and retention.
 */
#define ALL (K*PARTS)
#ifdef REPEAT
#define MAXLOG (ALL + ACTS*(ALL + PARTS))
#else
#define MAXLOG ALL
#endif
byte log[MAXLOG], lo, le;               /* frame * PARTS + part */
byte pub[2], box;                       /* owner, zombie: records published; those below box have left the outbox */
byte acts = ACTS;
#define published (pub[0] == ALL && box == ALL && pub[1] == 0)
#define bit(i) (1 << (i))
#define may (acts > 0)
#define did acts--
#define FR(q) ((q) / PARTS)
#define PT(q) ((q) % PARTS)

active proctype Publish() {
  do
#ifdef REPEAT
  :: d_step { may && box < pub[0] -> did; pub[1] = (pub[0] == ALL -> 0 : pub[0]); pub[0] = box }             /* takeover: the outbox again */
#endif
#ifdef CUT
  :: d_step { may && lo < le -> did; log[lo] = 0; lo++ }                                                      /* retention */
#endif
  :: d_step { pub[0] < ALL && le < MAXLOG -> log[le] = pub[0]; le++; pub[0]++ }
  :: d_step { pub[1] && pub[1] < ALL && le < MAXLOG -> log[le] = pub[1]; le++; pub[1] = (pub[1] + 1 == ALL -> 0 : pub[1] + 1) }
  :: d_step { pub[1] -> pub[1] = 0 }
  :: d_step { box < pub[0] -> box = pub[0] }                                                                  /* acknowledged: they leave the outbox */
  :: d_step { may -> did }
  :: quiet -> break
  od
}
