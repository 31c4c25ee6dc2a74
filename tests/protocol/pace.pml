/*
 * The pace of one service at a state sink: an entity changes N times within TIME, and is written
 * when it was quiet for SETTLE, at the latest MAX after its first unsent change, if the bucket has
 * a token. A kill, of ACTS, loses all but the saved position and the log. A write may take time.
 *
 * Asserted: the last content arrives; without a limit of the rate no change waits longer than MAX,
 * over kills; no window has more writes than the bucket allows, over kills.
 *
 * Rules, each with a switch that takes it away:
 *   PASS_RESTING  the position stays before the first unsent change
 *   NEWEST_AGE    MAX counts from the first unsent change: the newest would be put off by each other
 *   ARRIVAL_AGE   a new process counts MAX from the time in the log, not from its reading
 *   FULL_BUCKET   a new process begins without tokens: the one before may have spent them
 *   SPEND_EARLY   a token is spent at the end of a write: else a long one hides it
 */
#define N 4
#define TIME 9
#define SETTLE 2
#define MAX 3
#ifndef ACTS
#define ACTS 2
#endif
#ifdef RATE           /* ticks for a token */
#define BURST 1
#else
#define RATE 1
#define BURST 9       /* no limit */
#define UNLIMITED
#endif

byte now, published, at[N+1], acts = ACTS;
byte position;                  /* changes up to it are done, as the store has it */
byte sent;                      /* the target's content */
byte read, first, since, last;  /* in hand: read up to; the first unsent, its time, the last arrival */
byte tokens, part;              /* of the bucket */
byte allowed = BURST, fraction; /* of a bucket that no kill touches */
bool flying; byte content;

#define due (first && (now - last >= SETTLE || now - since >= MAX))

/* time passes while nothing is to be done */
#ifdef UNLIMITED
#define idle (!flying && !due)
#else
#define idle (flying && now < TIME || !flying && !(due && tokens))
#endif

inline fill(t, f) { if :: t == BURST -> f = 0 :: t < BURST && f + 1 == RATE -> f = 0; t++ :: else -> f++ fi }
inline begin() {
  read = position; first = 0; flying = false; part = 0;
#ifdef UNLIMITED
  tokens = BURST
#else
#ifdef FULL_BUCKET
  tokens = BURST
#else
  tokens = 0
#endif
#endif
}

init {
  begin();
end: do
  :: atomic { published < N && now < TIME -> published++; at[published] = now }
  :: atomic { read < published -> last = now;        /* see NO_NEWEST of deliver.pml for an older one alone */
     if
     :: !first -> first = read + 1;
#ifdef ARRIVAL_AGE
        since = now
#else
        since = at[first]
#endif
     :: else ->
#ifdef NEWEST_AGE
        since = now
#else
        skip
#endif
     fi;
     read = published;
#ifdef PASS_RESTING
     position = read
#endif
     }
  :: atomic { !flying && due && tokens -> flying = true; content = read;
#ifdef UNLIMITED
     assert(now - at[first] <= MAX);
#endif
#ifdef SPEND_EARLY
     tokens--
#endif
     }
  :: atomic { flying -> flying = false;
#ifndef UNLIMITED
     assert(allowed > 0); allowed--;
#endif
     assert(content >= sent); sent = content;
#ifndef SPEND_EARLY
#ifndef UNLIMITED
     tokens--;
#endif
#endif
     if                                    /* what came meanwhile is in hand */
     :: read > content -> first = content + 1; since = at[first]
     :: else -> first = 0
     fi;
     if :: position = content :: acts -> acts--; begin() fi }
  :: atomic { acts && now < TIME -> acts--; begin() }
  :: atomic { now < TIME + 8 && read == published && idle -> now++; fill(tokens, part); fill(allowed, fraction) }
  :: atomic { now == TIME + 8 && read == published && !flying && !(due && tokens) -> break }
  od;
  assert(sent == published)
}
