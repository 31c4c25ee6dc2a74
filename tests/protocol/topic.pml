/*
 * Exactly once in a Kafka topic: K changes of one service and one partition of the log, in
 * frames of two, go to one partition of a topic. Two processes that may each believe to
 * own them; requests land whenever they like, also after their sender died; answers
 * get lost. The row of the store has a position and a mark, where the topic has to be
 * read from for what stands at or above the position.
 *
 * Rules, each with a switch that takes it away:
 *   NO_FENCE     a leader takes requests of an older epoch
 *   NO_READ      nothing is read after a takeover
 *   FENCE_LATE   the topic is read first, then the predecessor is fenced
 *   MARK_UNSAVED the first write does not wait for the first mark to be saved
 *   MARK_AHEAD   the mark is saved with a position that what was written is not below
 *   MARK_ENDS    the mark is the topic's end, not that of the own records
 *   MARK_FOUND   the mark in memory passes what was found and not reached yet
 *   RESEND       what had no answer is sent again, without fencing and reading
 * RESTORE lets the store go back to a backup.
 */
#ifndef K
#define K 3
#endif
#ifndef ACTS
#define ACTS 3
#endif
#define MAXLOG 30
byte log[MAXLOG], le;                   /* change + 1; 0: a marker */
byte E, C;                              /* epoch that the leader knows; the coordinator's */
byte P, M, tok; bool HM;                /* the row: position, mark, owner + 1; whether it has a mark */
byte bP, bM; bool bHM;                  /* backup */

byte st[2];                             /* 0 dead, 1 owns the row, 2 half taken over, 3 writes, 4 has a mark to save */
byte p[2], m[2], en[2], tried[2], e[2]; /* next change, mark, end of the own records, highest that is there or on its way + 1, epoch */
byte left[2]; bool hm[2], kept[2];       /* found; it has a mark; the row has it */
byte f[2], fe[2], ans[2], ao[2];        /* request, its epoch, answer, where it ended */
byte lf, le2;                           /* a request nobody waits for: change + 1, epoch */
byte acts = ACTS;
hidden byte j;
#define bit(i) (1 << (i))
#define may (acts > 0)
#define did acts--
#define up(i) (st[i] != 0)
#define quiet (acts == 0 && P == K && lf == 0 && f[0] == 0 && f[1] == 0)

inline put(x) {                         /* a record is appended: none twice, none behind a newer one */
  j = 0;
  do :: j < le -> assert(log[j] < x); j++ :: else -> break od; j = 0;
  log[le] = x; le++
}

inline fence(i) { C++; e[i] = C; E = C; log[le] = 0; le++ }

inline look(i) {
  left[i] = 0;
  if
  :: hm[i] ->
#ifndef NO_READ
     j = m[i];
     do
     :: j < le ->
        if :: log[j] -> left[i] = left[i] | bit(log[j] - 1); tried[i] = (log[j] > tried[i] -> log[j] : tried[i]) :: else fi;
        j++
     :: else -> break
     od; j = 0
#endif
  :: else -> m[i] = le; hm[i] = true
  fi;
  en[i] = le
}

inline pass(i) {                        /* the mark in memory, when nothing is on its way */
#ifdef MARK_FOUND
  m[i] = en[i]
#else
  if :: p[i] >= tried[i] -> m[i] = en[i] :: else fi
#endif
}

inline writes(i) {                      /* a first mark is saved before the first write */
#ifdef MARK_UNSAVED
  st[i] = 3
#else
  st[i] = (kept[i] -> 3 : 4)
#endif
}

proctype Process(byte i) {
  do
  /* takeover: free if nobody is there */
  :: d_step { st[i] == 0 && P < K && (may || !up(1 - i)) ->
     if :: up(1 - i) -> did :: else fi;
     tok = i + 1; p[i] = P; m[i] = M; hm[i] = HM; kept[i] = HM; tried[i] = P; st[i] = 1 }
#ifdef FENCE_LATE
  :: d_step { st[i] == 1 -> look(i); st[i] = 2 }
  :: d_step { st[i] == 2 -> fence(i); writes(i) }
#else
  :: d_step { st[i] == 1 -> fence(i); st[i] = 2 }
  :: d_step { st[i] == 2 -> look(i); writes(i) }
#endif
  :: d_step { st[i] == 4 && tok == i + 1 -> HM = true; M = m[i]; kept[i] = true; st[i] = 3 }
  :: d_step { st[i] == 4 && tok != i + 1 -> st[i] = 0 }
  /* writing */
  :: d_step { st[i] == 3 && f[i] == 0 && ans[i] == 0 && p[i] < K && (left[i] & bit(p[i])) -> p[i]++; pass(i) }
  :: d_step { st[i] == 3 && f[i] == 0 && ans[i] == 0 && p[i] < K && !(left[i] & bit(p[i])) ->
     f[i] = p[i] + 1; fe[i] = e[i]; tried[i] = (f[i] > tried[i] -> f[i] : tried[i]) }
  :: d_step { f[i] && le < MAXLOG ->
     if
#ifdef NO_FENCE
     :: true
#else
     :: fe[i] >= E
#endif
        -> put(f[i]); ans[i] = 1; ao[i] = le
     :: else -> ans[i] = 2
     fi; f[i] = 0 }
  :: d_step { st[i] == 3 && ans[i] == 1 -> p[i]++; en[i] = ao[i]; ans[i] = 0; pass(i) }
  :: d_step { may && st[i] == 3 && f[i] == 0 && ans[i] == 0 -> did; st[i] = 1 }              /* its identity is old, or found more than it remembers */
  :: d_step { st[i] == 3 && ans[i] == 2 && tok == i + 1 -> ans[i] = 0; st[i] = 1 }         /* fenced: it takes over again */
  :: d_step { st[i] == 3 && ans[i] == 2 && tok != i + 1 && may -> did; ans[i] = 0; st[i] = 1 }  /* it has not heard yet */
  :: d_step { may && st[i] == 3 && ans[i] -> did; ans[i] = 0;                 /* the answer is lost */
#ifndef RESEND
     st[i] = 1
#endif
     }
  :: d_step { may && st[i] == 3 && f[i] && lf == 0 -> did; lf = f[i]; le2 = fe[i]; f[i] = 0;   /* it did not wait for it */
#ifndef RESEND
     st[i] = 1
#endif
     }
  :: d_step { may && up(i) -> did;                                            /* it dies, what it sent goes on */
     if :: f[i] && lf == 0 -> lf = f[i]; le2 = fe[i] :: else fi;
     st[i] = 0; f[i] = 0; ans[i] = 0; p[i] = 0; m[i] = 0; en[i] = 0; tried[i] = 0; left[i] = 0; hm[i] = false; kept[i] = false }
  /* the row: positions are borders of frames */
  :: d_step { st[i] == 3 && f[i] == 0 && ans[i] == 0 && tok == i + 1 && (p[i] == K && P < K || (p[i] & 254) > P) ->
     P = (p[i] == K -> K : p[i] & 254);
#ifdef MARK_AHEAD
     M = m[i]
#else
#ifdef MARK_ENDS
     if :: P >= tried[i] -> M = le :: else fi
#else
     if :: P >= tried[i] -> M = m[i] :: else fi
#endif
#endif
     }
#ifdef MARK_AHEAD
  :: d_step { st[i] == 3 && f[i] == 0 && ans[i] == 0 && tok == i + 1 && p[i] < K && M != m[i] -> M = m[i] }    /* inside a frame: the position stays */
#endif
  :: d_step { st[i] && tok != i + 1 && f[i] == 0 -> st[i] = 0; ans[i] = 0 }   /* it hears that the row is another's */
  :: P == K && f[i] == 0 && acts == 0 -> break
  od
}

active proctype World() {
  run Process(0); run Process(1);
  do
  :: d_step { lf && le < MAXLOG ->
     if
#ifdef NO_FENCE
     :: true
#else
     :: le2 >= E
#endif
        -> put(lf)
     :: else
     fi; lf = 0; le2 = 0 }
  :: d_step { lf -> lf = 0; le2 = 0 }                                         /* it never arrives */
#ifdef RESTORE
  :: d_step { may -> did; bP = P; bM = M; bHM = HM }
  :: d_step { may && bHM -> did; P = bP; M = bM; HM = bHM; tok = 0 }
#endif
  :: d_step { may -> did }
  :: d_step { quiet ->                                                        /* nothing is lost */
     p[0] = 0; j = 0;
     do :: j < le -> p[0] = (log[j] -> p[0] + 1 : p[0]); j++ :: else -> break od; j = 0;
     assert(p[0] == K) } -> break
  od
}
