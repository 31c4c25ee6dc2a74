/*
 * Refusals: one service and one entity, from the inbox through the dam to the
 * sink, and what the dam remembers of a document that the sink does not take.
 * Deciding is one atomic step here (decide.pml), and so is the log: changes come
 * in the order of their versions, from the position on (deliver.pml).
 *
 * The deliverer may die before every step. The sink may refuse a change, take it
 * and answer, take it without an answer, or lose it without an answer. What is
 * refused, or given up without an answer, is marked by a control record in the
 * inbox, then becomes a dead letter, one per content, then the position passes it.
 *
 * Rules, each with a switch that takes it away:
 *   REFUSED_UNKNOWN    a refusal makes the dam row unknown
 *   REFUSED_DELIVERED  it takes the row back to the content that was delivered last
 *   REFUSED_HOLDS      a refused row holds back everything until an operator acts
 *   REFUSED_ANY        it marks the row also if that has a newer version by now
 *   SKIP_REFUSED       what is marked as refused does not count as the newest
 *   LETTER_LATE        the position moves before the dead letter is stored
 *   LETTER_FIRST       the letter of a content keeps the version that was refused first
 *   MARK_FIRST         the position moves before the sink has the change
 *   NO_NEWEST          after a crash no look at the dam
 *
 * Sinks: a state sink without a guard of its own, which writes whatever comes.
 *   -DLOG      a log sink that skips keys that it knows
 *   -DGUARDED  a state sink that turns older versions away
 */
#ifndef EVENTS
#define EVENTS 3        /* events that a producer sends; equal content: something else of the entity changed */
#endif
#ifndef FAULTS
#define FAULTS 3        /* crashes, refusals, lost answers */
#endif
#ifndef REPLAYS
#define REPLAYS 1       /* by an operator, or a scheduled retry */
#endif
#define MAXIN  (EVENTS + FAULTS + REPLAYS)
#define UNKNOWN 3       /* content that equals nothing; 0: nothing was ever sent */
#define REPLAY  40
#define bit(i)    (1 << (i))
#define has(m, i) (((m) >> (i)) & 1)

/* Inbox: 1 and 2 are contents, 8+v marks version v as refused. The version of a
   change is its place, from 1. */
byte inbox[MAXIN]; byte end, decided, sent, replays, view;
byte content, dver; bool refused;   /* dam row; content is what a refusal is of */
byte made[MAXIN+1];                 /* content of each version that became a change */
byte letter[3];                     /* per content, the version of its dead letter; 0: none */
short lettered;                     /* versions that ever were one */
byte position, took;                /* up to which version; content that took effect last */
byte at, sinkAs; short applied;     /* the sink: newest version, its content, keys that it knows */
byte faults = FAULTS;
byte st, first, second, end0, owed; /* the deliverer; newest version that may have been in hand before it started */
bool doubt;                         /* the last failure was ambiguous */
hidden byte i;

#define WAIT    0
#define TRY     1
#define MARK    2
#define LETTER  3
#define MOVE    4

#define quiet (faults == 0 && replays == REPLAYS && sent == EVENTS && decided == end && position >= dver && st == WAIT && !owed)

inline apply(v) {
  if
#ifdef LOG
  :: has(applied, v) -> skip                      /* the key is known */
  :: else ->
     i = 1;
     do                                           /* in order, none left out but dead letters */
     :: i < v -> assert(made[i] == 0 || has(applied, i) || has(lettered, i)); i++
     :: else -> break
     od;
     i = 0; applied = applied | bit(v);
     if :: v > at -> at = v; sinkAs = made[v] :: else fi
#else
#ifdef GUARDED
  :: v <= at -> skip
#endif
  :: else -> assert(v >= at); at = v; sinkAs = made[v]
#endif
  fi
}

/* May it be sent? A state sink without a guard gets what may have been in hand
   before only if the dam says that it is the newest. */
#if defined(LOG) || defined(GUARDED) || defined(NO_NEWEST)
#define worth(v) true
#else
#ifdef SKIP_REFUSED
#define worth(v) ((v) > end0 || (v) >= dver && !refused)
#else
#define worth(v) ((v) > end0 || (v) >= dver)
#endif
#endif

/* i: the first change behind v; 0: none */
inline after(v) {
  i = v + 1;
  do :: i <= decided && made[i] == 0 -> i++ :: else -> break od;
  if :: i > decided -> i = 0 :: else fi
}

inline store(v) {
#ifdef LETTER_FIRST
  if :: letter[made[v]] == 0 -> letter[made[v]] = v :: else fi;
#else
  letter[made[v]] = v;
#endif
  lettered = lettered | bit(v)
}

#ifdef LETTER_LATE
#define LATE owed
#else
#define LATE false
#endif

/* The first change of the batch is done with, in one way or another. */
inline pop() {
  st = (second -> TRY : MOVE); if :: second -> first = second; second = 0 :: else fi; doubt = false
}

proctype Deliverer() {
  do
  /* One or two changes; a state sink gets the newest of them. */
  :: atomic { st == WAIT && position < dver ->
     d_step { after(position); first = i; after(first); second = i; i = 0; doubt = false }
     if :: second = 0 :: skip fi;
#ifndef LOG
     if :: second -> first = second; second = 0 :: else fi;
#endif
#ifdef MARK_FIRST
     position = (second -> second : first);
#endif
     st = (worth(first) -> TRY : MOVE) }

  :: d_step { st == TRY -> apply(first); took = made[first]; pop() }
  :: d_step { st == TRY && faults -> faults--; apply(first); doubt = true }           /* taken, no answer */
  :: d_step { st == TRY && faults -> faults--; doubt = true }                         /* lost, no answer */
  :: d_step { st == TRY && faults -> faults--; st = MARK }                            /* refused */
  :: d_step { st == TRY && doubt -> st = MARK }                                       /* given up */
#ifndef LOG
  :: d_step { st == TRY && doubt && dver > first -> pop() }                           /* overtaken */
#endif
  :: d_step { st == MARK && end < MAXIN -> inbox[end] = 8 + first; end++; st = LETTER }
#ifdef LETTER_LATE
  :: d_step { st == LETTER && !owed -> owed = first; pop() }
  :: d_step { owed && st == WAIT -> store(owed); owed = 0 }
#else
  :: d_step { st == LETTER -> store(first); pop() }
#endif
  :: d_step { st == MOVE -> if :: first > position -> position = first :: else fi; first = 0; st = WAIT;
     assert(position < dver || at >= dver || letter[made[dver]] == dver || LATE) }     /* "delivered" is so */
  :: d_step { (st != WAIT || owed) && faults -> faults--;                             /* crash */
     st = WAIT; first = 0; second = 0; doubt = false; owed = 0; end0 = dver }
  :: quiet -> break
  od
}
inline change(c) { content = c; dver = decided; made[decided] = c; refused = false }

proctype Decide() {
  do
  :: d_step { sent < EVENTS && end < MAXIN -> inbox[end] = 1; end++; sent++ }
  :: d_step { sent < EVENTS && end < MAXIN -> inbox[end] = 2; end++; sent++ }
  :: d_step { replays < REPLAYS && end < MAXIN && dver -> inbox[end] = REPLAY; end++; replays++ }
  :: d_step { replays < REPLAYS -> replays++ }
  :: d_step { decided < end ->
     i = inbox[decided]; decided++;
     if
#ifdef REFUSED_HOLDS
     :: i < 8 && i != content && !refused ->
#else
     :: i < 8 && i != content ->
#endif
#ifndef REFUSED_DELIVERED                                                             /* which shows this, and a loss as well */
        assert(i != view);                                                            /* the view did not change, and nobody asked */
#endif
        change(i); view = i
     :: i == REPLAY ->                                                                /* decided again, under a version of its own */
        letter[view] = 0; change(view)
     :: i >= 8 && i < REPLAY ->
#ifdef REFUSED_ANY
        content = made[i - 8]; refused = true
#else
        if
        :: i - 8 == dver ->
           refused = true;
#ifdef REFUSED_UNKNOWN
           content = UNKNOWN
#endif
#ifdef REFUSED_DELIVERED
           content = (took -> took : UNKNOWN)
#endif
        :: else
        fi
#endif
     :: else -> view = i                                                              /* held back */
     fi;
     i = 0 }
  :: d_step { faults -> faults-- }                                                    /* there need not be any */
  :: quiet -> break
  od
}

init {
  atomic { run Deliverer(); run Decide() };
  (_nr_pr == 1);
  /* The sink holds the newest content, or its dead letter is open. */
  assert(sinkAs == view || letter[view] == dver && made[dver] == view)
}
