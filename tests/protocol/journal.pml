/*
 * A version never has two contents, although the store is restored and the configuration
 * changes. One partition, N events, two configurations, whose content differs. A version is a
 * generation and an offset. Two processes, each with a configuration of its own, which an operator
 * changes; a process activates its own when the store has another one.
 *
 * The journal is a small topic beside the inbox, which no restore of the store takes back: a record for
 * each revision and each generation, durable before the store commits it. An owner takes over, then
 * reads the journal: an entry that the store does not know (a restore, or an activation that never
 * took effect) begins a new generation. In a new session of the server a partition is in doubt, until
 * all is decided that the inbox had after the first takeover: decisions of it may have been lost. An
 * activation in doubt begins a generation.
 *
 * ACTS: backups, restores (fail-overs), changes of a process's configuration. A process may die or
 * sleep between any two steps. Contents of memory are sent late, also of a future that was lost.
 *
 * Rules, each with a switch that takes it away:
 *   NO_JOURNAL    there is one
 *   JOURNAL_LATE  its record comes before the commit
 *   LOOK_FIRST    it is read after the takeover
 *   NO_SESSION    a decision compares the session of the server
 *   NO_DOUBT      an activation in doubt begins a generation
 *   DOUBT_EARLY   the end of the inbox is read after the takeover
 *   DOUBT_RESTORED  what a store says of doubt holds in its session only
 *   GEN_UNNOTED   generations stand in the journal
 *   VOID_LATE     an activation whose record began a generation before it was committed takes another number
 *   HAND_EARLY    a frame is handed over after its commit
 */
#ifndef N
#define N 1
#endif
#ifndef ACTS
#define ACTS 4
#endif
#ifndef MAXREV
#define MAXREV 3
#endif
#ifndef MAXGEN
#define MAXGEN 4              /* the search ends where numbers end: no deadlocks are looked for */
#endif
#define ALL 15                  /* in doubt: how far is not known yet */
#define max(a,b) ((a) > (b) -> (a) : (b))
#define bit(i) (1 << (i))
#define top(m) ((m)&32 -> 5 : ((m)&16 -> 4 : ((m)&8 -> 3 : ((m)&4 -> 2 : ((m)&2 -> 1 : 0)))))

typedef Store {
  byte W, g, rev, cfg, known, tok;          /* known: revisions whose place in the history it knows */
  byte doubt, in_;                          /* in doubt up to; the session in which that was written */
  byte fr[N], fg[N]                         /* frames: content and generation */
}
Store s, old; bool kept; byte ses;
byte jr = 2, jg = 1;            /* the journal: revisions, highest generation */
byte end;
byte sink[N * MAXGEN];          /* content of each version */
byte acts = ACTS, cfgOf[2];
typedef P {
  byte st;                      /* 0 no owner, 1 taken over, 2 decides, 3 has to begin a generation */
  byte tok, ses, w, g, rev, E, un, G;
  byte mem[N], mg[N];           /* frames in memory */
  byte a, n, aG                 /* activation: 1 its record is in the journal */
}
P p[2];
#define O p[d]
hidden byte x;

inline effect(gen, off, con) { assert(sink[((gen) - 1) * N + (off)] == 0 || sink[((gen) - 1) * N + (off)] == (con)); sink[((gen) - 1) * N + (off)] = con }
#ifdef DOUBT_RESTORED
#define inDoubt (s.doubt > s.W)
#else
#define inDoubt (s.doubt > s.W || s.in_ != ses)
#endif
inline copy(to, from) {
  to.W = from.W; to.g = from.g; to.rev = from.rev; to.cfg = from.cfg; to.known = from.known; to.tok = from.tok; to.doubt = from.doubt; to.in_ = from.in_;
  x = 0; do :: x < N -> to.fr[x] = from.fr[x]; to.fg[x] = from.fg[x]; x++ :: else -> break od; x = 0
}
inline drop() { O.st = 0; O.tok = 0; O.ses = 0; O.w = 0; O.g = 0; O.rev = 0; O.E = 0; O.un = 0; O.G = 0; x = 0;
  do :: x < N -> O.mem[x] = 0; O.mg[x] = 0; x++ :: else -> break od; x = 0 }

#ifdef NO_JOURNAL
#define unknown 0
#else
#define unknown (jr & ~s.known)
#endif
#ifdef GEN_UNNOTED
#define newGen (s.g + 1)
#define gens s.g
#else
#define newGen (max(jg, s.g) + 1)
#define gens jg
#endif
#ifdef NO_JOURNAL
#define newRev (s.rev + 1)
#else
#define newRev (max(top(jr), s.rev) + 1)
#endif
#define upTo(num) (bit((num) + 1) - 1)
#define note(num) jr = jr | bit(num)

#ifdef NO_SESSION
#define present true
#else
#define present (O.ses == ses)
#endif
#define deciding (O.st == 2 && O.tok == s.tok && present && O.w == s.W && O.g == s.g && O.rev == s.rev && s.W < end)

proctype Process(byte d) {
  do
  /* Takeover under its own configuration. */
  :: d_step { O.st == 0 && cfgOf[d] == s.cfg && O.a == 0 ->
#ifdef DOUBT_EARLY
     skip;
#endif
     x = 1; do :: x == s.tok || x == old.tok || x == p[1-d].tok -> x++ :: else -> break od;
     s.tok = x; O.tok = x; x = 0; O.ses = ses; O.w = s.W; O.g = s.g; O.rev = s.rev; O.st = 1;
#ifdef DOUBT_RESTORED
     s.doubt = ALL
#else
     if :: s.in_ != ses -> s.doubt = ALL; s.in_ = ses :: else fi
#endif
     }
#ifdef DOUBT_EARLY
  :: d_step { O.st == 0 && O.E == 0 -> O.E = end + 1 }                        /* some time before the takeover */
#endif
  /* It reads the journal, and the end of the inbox. */
  :: d_step { O.st == 1 ->
#ifndef LOOK_FIRST
     O.un = unknown; if :: gens > s.g -> O.un = O.un | 1 :: else fi;
#endif
#ifdef DOUBT_EARLY
     if :: O.E == 0 -> O.E = end + 1 :: else fi;
     O.E--;
#else
     O.E = end;
#endif
     if :: O.un -> O.st = 3 :: else -> O.st = 2 fi }
#ifdef LOOK_FIRST
  :: d_step { O.st == 0 -> O.un = unknown; if :: gens > s.g -> O.un = O.un | 1 :: else fi }
#endif
  /* A generation: in the journal first, then in the store, which knows all of the journal then. */
  :: d_step { O.st == 3 && O.G == 0 && newGen < MAXGEN -> O.G = newGen; jg = max(jg, O.G); O.un = upTo(top(jr)) }
  :: d_step { O.st == 3 && O.G ->
     if :: s.g == O.g && O.ses == ses -> s.g = O.G; s.known = s.known | O.un; s.tok = 0; s.doubt = 0; s.in_ = ses :: else fi;
     drop() }
  /* A decision, and what is delivered of it at once or later. */
  :: d_step { deciding ->
     s.fr[s.W] = cfgOf[d]; s.fg[s.W] = O.g; O.mem[s.W] = cfgOf[d]; O.mg[s.W] = O.g;
     if :: s.doubt == ALL -> s.doubt = O.E :: else fi;
     s.W++; O.w = s.W }
  :: d_step { O.st == 2 && O.tok == s.tok && present && s.doubt == ALL -> s.doubt = O.E }      /* also without a decision */
#ifdef HAND_EARLY
  :: d_step { O.st == 2 && O.w < end && cfgOf[d] && O.mem[O.w] == 0 -> effect(O.g, O.w, cfgOf[d]); O.mem[O.w] = cfgOf[d]; O.mg[O.w] = O.g }
#endif
  :: d_step { O.mem[0] -> effect(O.mg[0], 0, O.mem[0]); O.mem[0] = 0 }
  :: d_step { O.mem[N-1] -> effect(O.mg[N-1], N-1, O.mem[N-1]); O.mem[N-1] = 0 }
  /* From the table, by the owner. */
  :: d_step { O.st == 2 && O.tok == s.tok && present && s.fr[0] && s.W > 0 -> effect(s.fg[0], 0, s.fr[0]) }
  :: d_step { O.st == 2 && O.tok == s.tok && present && s.fr[N-1] && s.W == N -> effect(s.fg[N-1], N-1, s.fr[N-1]) }
  /* It notices that it is the owner no more, or dies. */
  :: d_step { O.st && !(O.tok == s.tok && O.ses == ses && O.rev == s.rev && O.g == s.g && O.w == s.W) -> drop() }
  /* An activation: in the journal first, with a generation if it is in doubt. */
  :: d_step { O.st == 0 && O.a == 0 && cfgOf[d] != s.cfg && newRev <= MAXREV && newGen < MAXGEN ->
     O.n = newRev; O.aG = (inDoubt -> newGen : 0); O.a = 1;
#ifndef JOURNAL_LATE
     note(O.n); if :: O.aG -> jg = max(jg, O.aG) :: else fi
#endif
     }
  :: d_step { O.a == 1 ->
     if
     :: O.n <= s.rev || s.cfg == cfgOf[d] || O.aG && O.aG <= s.g -> skip                  /* another activation was first */
#ifndef NO_DOUBT
     :: O.n > s.rev && s.cfg != cfgOf[d] && inDoubt && !O.aG -> skip                     /* in doubt by now: once more */
#endif
#ifndef VOID_LATE
     :: s.known & bit(O.n) -> skip                                                        /* its number is void: a generation began since */
#endif
     :: else -> s.rev = O.n; s.cfg = cfgOf[d]; s.known = s.known | bit(O.n);
#ifndef NO_DOUBT
        if :: inDoubt -> s.g = O.aG; s.tok = 0; s.doubt = 0; s.in_ = ses; s.known = s.known | upTo(O.n) :: else fi
#endif
     fi;
#ifdef JOURNAL_LATE
     O.a = 2
#else
     O.a = 0; O.n = 0; O.aG = 0
#endif
     }
#ifdef JOURNAL_LATE
  :: d_step { O.a == 2 -> note(O.n); if :: O.aG -> jg = max(jg, O.aG) :: else fi; O.a = 0; O.n = 0; O.aG = 0 }
  :: d_step { acts && O.a == 2 -> acts--; O.a = 0; O.n = 0; O.aG = 0 }
#endif
  :: d_step { acts && O.a == 1 -> acts--; O.a = 0; O.n = 0; O.aG = 0 }                   /* it dies before the commit */
  :: d_step { acts && O.st == 0 && O.a == 0 -> acts--; cfgOf[d] = 3 - cfgOf[d] }         /* an operator changes its configuration */
  :: acts == 0 && s.W == end && end == N -> break
  od
}

init {
  atomic {
    s.g = 1; s.rev = 1; s.cfg = 1; s.known = 2; cfgOf[0] = 1;
    if :: cfgOf[1] = 1 :: cfgOf[1] = 2 fi;
    run Process(0); run Process(1)
  }
  do
  :: d_step { end < N -> end++ }
  :: d_step { acts && !kept && s.tok -> acts--; kept = true; copy(old, s) }
  :: d_step { acts && kept && ses < 3 -> acts--; copy(s, old); ses++ }
  :: d_step { acts -> acts-- }
  :: acts == 0 && end == N && s.W == N -> break
  od
}
