/*
 * Deliver: one service and one entity, from the inbox through the dam to the
 * sink and back, by way of refusals. Deciding is one atomic step here;
 * decide.pml tells why that may be said.
 *
 * The deliverer may die before every step. The sink may refuse a change, take
 * it and answer, take it without an answer, or lose it without an answer.
 *
 * Rules, each with a switch that takes it away:
 *   RELEASE_DELIVERED  a refused row goes back to the content that was confirmed
 *   RELEASE_BY_LAST    it does so unless the *last* failure was ambiguous
 *   RELEASE_UNKNOWN    a refused row becomes unknown
 *   NO_SKIP            versions at or below the confirmed one are sent again
 *   MARK_FIRST         confirm before the sink has the change
 *   ACK_FIRST          acknowledge before confirm and dead letter
 *
 * Sinks: a state sink without a guard of its own, which writes whatever comes.
 *   -DLOG      a log sink that skips keys that it knows
 *   -DGUARDED  a state sink that turns older versions away
 *   -DZOMBIES  deliverers that go on after they were replaced
 */
#ifndef EVENTS
#define EVENTS 3        /* events that a producer sends */
#endif
#ifndef FAULTS
#define FAULTS 3        /* crashes, refusals, lost answers, repetitions in the topic */
#endif
#define MAXIN  (EVENTS + FAULTS + 1)
#define MAXOUT (EVENTS + FAULTS + 1)
#define UNKNOWN 3       /* content that equals nothing; 0: nothing was ever sent */
#define bit(i)    (1 << (i))
#define has(m, i) (((m) >> (i)) & 1)

/* Inbox: 1 and 2 are contents, 32+v says that version v was refused, which the row
   keeps; 8+v takes it back to the confirmed content. The version of a change is its
   place, from 1. */
byte inbox[MAXIN]; byte end, decided, sent, truth;
byte content, dver;             /* dam row */
byte confirmed, confirmedAs;    /* version and content that were confirmed */
byte made[MAXIN+1];             /* content of each version that became a change */
byte topic[MAXOUT]; byte top;   /* versions */
short letters;                  /* versions that are dead letters */
byte at, sinkAs; short applied; /* the sink: newest version, its content, keys that it knows */
byte committed;                 /* offset in the topic */
byte faults = FAULTS;
byte assigned;
#ifdef ZOMBIES
#define D 2
#else
#define D 1
#endif
byte st[D], pos[D], first[D], second[D];
bool doubt[D];                  /* the last failure was ambiguous */
hidden byte i;

#define quiet (faults == 0 && sent == EVENTS && decided == end && (committed == top) && st[0] == WAIT && st[D-1] == WAIT)

#define WAIT    0
#define TRY     1
#define RELEASE 2
#define LETTER  3
#define CONFIRM 4
#define ACK     5

inline apply(v) {
  if
#ifdef LOG
  :: has(applied, v) -> skip                      /* the key is known */
  :: else ->
     i = 1;
     do                                           /* in order, none left out but dead letters */
     :: i < v -> assert(made[i] == 0 || has(applied, i) || has(letters, i)); i++
     :: else -> break
     od;
     assert(v > at || has(letters, v)); i = 0;
     applied = applied | bit(v);
     if :: v > at -> at = v; sinkAs = made[v] :: else fi  /* its readers go by version */
#else
#ifdef GUARDED
  :: v <= at -> skip
#endif
  :: else ->
     /* Never back behind what was confirmed. A crash before the confirmation may
        repeat what a larger batch had coalesced; the newest follows it. */
     assert(v >= at || v > confirmed);
     at = v; sinkAs = made[v]
#endif
  fi
}

inline skipOld(d, v) {
#ifdef NO_SKIP
  skip
#else
  if :: v <= confirmed -> v = 0 :: else fi
#endif
}

inline forget(d) { st[d] = WAIT; pos[d] = 0; first[d] = 0; second[d] = 0; doubt[d] = false }

/* The first change of the batch is done with, in one way or another. */
inline pop(d) {
  first[d] = second[d]; second[d] = 0; doubt[d] = false;
  if :: first[d] -> st[d] = TRY :: else -> st[d] = CONFIRM fi
}

proctype Deliverer(byte d) {
  byte done;                                      /* newest version that took effect in this batch */
  do
  /* One or two messages: without those that were confirmed; of a state sink the newest. */
  :: atomic { st[d] == WAIT && assigned == d && committed < top ->
     pos[d] = committed + 1; first[d] = topic[committed];
     if
     :: committed + 1 < top -> pos[d] = committed + 2; second[d] = topic[committed + 1]
     :: skip
     fi;
     d_step {
       done = 0;
       skipOld(d, first[d]); skipOld(d, second[d]);
       if
       :: second[d] && second[d] <= first[d] -> second[d] = 0       /* a repetition */
       :: else
       fi;
#ifndef LOG
       if :: second[d] -> first[d] = 0 :: else fi;                  /* coalesced */
#endif
       if :: !first[d] -> first[d] = second[d]; second[d] = 0 :: else fi;
       if :: first[d] -> st[d] = TRY :: else -> st[d] = ACK fi;
#ifdef MARK_FIRST
       if :: first[d] -> i = (second[d] -> second[d] : first[d]);
             if :: i > confirmed -> confirmed = i; confirmedAs = made[i] :: else fi; i = 0
       :: else fi;
#endif
#ifdef ACK_FIRST
       committed = pos[d]
#endif
     } }

  :: d_step { st[d] == TRY -> apply(first[d]); done = first[d]; pop(d) }
  :: d_step { st[d] == TRY && faults -> faults--; apply(first[d]); doubt[d] = true }  /* taken, no answer */
  :: d_step { st[d] == TRY && faults -> faults--; doubt[d] = true }                   /* lost, no answer */
  :: d_step { st[d] == TRY && faults -> faults--; doubt[d] = false; st[d] = RELEASE } /* refused */
  :: d_step { st[d] == TRY && doubt[d] -> st[d] = RELEASE }                           /* given up */
#ifndef LOG
  :: d_step { st[d] == TRY && doubt[d] && dver > first[d] -> pop(d) }                 /* overtaken */
#endif

  :: d_step { st[d] == RELEASE && end < MAXIN ->
#ifdef RELEASE_DELIVERED
     inbox[end] = 8 + first[d]; end++;
#else
#ifdef RELEASE_BY_LAST
     if :: doubt[d] -> inbox[end] = 32 + first[d] :: else -> inbox[end] = 8 + first[d] fi; end++;
#else
     inbox[end] = 32 + first[d]; end++;
#endif
#endif
     st[d] = LETTER }
  :: d_step { st[d] == LETTER -> letters = letters | bit(first[d]); pop(d) }

  :: d_step { st[d] == CONFIRM ->
     if :: done > confirmed -> confirmed = done; confirmedAs = made[done] :: else fi;
     done = 0; st[d] = ACK }
  :: d_step { st[d] == ACK -> if :: assigned == d && committed < pos[d] -> committed = pos[d] :: else fi; forget(d); done = 0 }

  :: d_step { st[d] != WAIT && faults -> faults--; forget(d); done = 0 }              /* crash */
  :: d_step { st[d] != WAIT && assigned != d -> forget(d); done = 0 }                 /* revoked */
  :: st[d] == WAIT && quiet -> break
  od
}

proctype Decide() {
  do
  :: d_step { sent < EVENTS && end < MAXIN -> inbox[end] = 1; end++; sent++; truth = 1 }
  :: d_step { sent < EVENTS && end < MAXIN -> inbox[end] = 2; end++; sent++; truth = 2 }
  :: d_step { decided < end ->
     i = inbox[decided]; decided++;
     if
     :: i < 8 && i != content && top < MAXOUT ->
        /* What a letter has goes out again only behind another content. */
        assert(!dver || !has(letters, dver) || made[dver] != i);
        content = i; dver = decided; made[decided] = i; topic[top] = decided; top++
     :: i < 8 && i == content -> skip
#ifdef RELEASE_UNKNOWN
     :: i >= 32 -> if :: i - 32 == dver -> content = UNKNOWN :: else fi
#else
     :: i >= 32 -> skip                           /* the content stays, and is held back */
#endif
     :: i >= 8 && i < 32 -> if :: i - 8 == dver -> content = (confirmed -> confirmedAs : UNKNOWN) :: else fi
     fi;
     i = 0 }
  /* A zombie of decide publishes an old change once more. */
  :: atomic { faults && top > 0 && top < MAXOUT -> faults--;
     if :: topic[top] = topic[0] :: top > 1 -> topic[top] = topic[1] fi; top++ }
#ifdef ZOMBIES
  :: d_step { faults -> faults--; assigned = 1 - assigned }
#endif
  :: d_step { faults -> faults-- }                                                    /* there need not be any */
  :: quiet -> break
  od
}

init {
  atomic { run Deliverer(0);
#ifdef ZOMBIES
    run Deliverer(1);
#endif
    run Decide() };
  (_nr_pr == 1);
  /* The sink holds the newest content, or a dead letter has it. */
  assert(sinkAs == truth || has(letters, dver) && made[dver] == truth)
}
