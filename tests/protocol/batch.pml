/*
 * A batch of decide: the records of one partition come in messages that begin at the
 * first record that is not acknowledged. A message is decided in pieces, one
 * transaction each. While a publish of the partition is under way its records are left
 * out, and a message that was not decided to its end comes again. What a transaction and
 * its takeover do is in decide.pml.
 *
 * The adversary is not counted: any number of failed publishes, commits of unknown
 * outcome and crashes.
 *
 * Rules, each with a switch that takes it away:
 *   OVERTAKE  what comes behind a record that was left out is decided before it
 *   FORGET    a takeover forgets what was left out
 */
#ifndef N
#define N 4             /* records */
#endif
#define bit(i) (1 << (i))
#define range(a,b) ((bit(b) - 1) & ~(bit(a) - 1))
byte W, dec;            /* the store: watermark; records that were decided */
byte next, out;         /* the owner: next record; behind the first one that was left out, of no meaning up to next */
bool busy, stale;       /* a publish is under way; it has to take over again */
byte base, at, end;     /* acknowledged up to here; the message: next of it, where it ends */
byte e;                 /* where a piece ends */
hidden byte r, todo;

#define takes (!busy && !stale)
#ifdef OVERTAKE
#define behind(q) false
#else
#define behind(q) (out > next && (q) >= out)
#endif

/* All below the watermark was decided. */
inline honest() { assert((range(0, W) & ~dec) == 0) }

inline retake() {
  if
  :: stale && !busy -> stale = false; next = W;
#ifdef FORGET
     out = 0
#endif
  :: else
  fi
}

/* The records of a piece that are decided now. */
inline filter() {
  r = at; todo = 0;
  do
  :: r < e ->
     if
     :: r < next || behind(r) -> skip
     :: else ->
        if
        :: takes -> out = 0; todo = todo | bit(r)
        :: else -> out = r + 1
        fi
     fi;
     r++
  :: else -> break
  od; r = 0
}
inline commit() { dec = dec | todo; W = e; todo = 0; honest() }

active proctype Owner() {
  do
  :: d_step { end == 0 && base < N -> at = base; end = base + 1 }                                /* a message comes */
  :: d_step { end && end < N && at == base && e == 0 -> end++ }                                 /* with more in it */
  :: d_step { end && at < end && e == 0 -> e = at + 1 }
  :: d_step { e && e < end -> e++ }
  :: d_step { e -> retake(); filter();
     if
     :: todo -> commit(); next = e; busy = true
     :: else
     fi;
     at = e; e = 0 }
  :: d_step { e -> retake(); filter(); if :: todo -> commit(); stale = true :: else -> at = e; e = 0 fi }  /* no answer, but effect */
  :: d_step { e -> retake(); filter(); if :: todo -> todo = 0; stale = true :: else -> at = e; e = 0 fi }  /* nor that */
  :: d_step { end && at == end && e == 0 -> if :: end <= next -> base = end :: else fi; at = 0; end = 0 }   /* acknowledged, or it comes again */
  :: d_step { base == N && !busy -> retake() }; if :: base == N && !busy && W == N -> break :: else fi
  :: d_step { busy -> busy = false }                                                            /* published */
  :: d_step { busy -> busy = false; stale = true }                                              /* or not */
  :: d_step { base < N -> base = W; at = 0; end = 0; e = 0; next = W; out = 0; busy = false; stale = false }      /* crash, or another owner */
  od
}
