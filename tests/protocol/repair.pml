/*
 * Repairs: what two partitions lost of their logs is decided again by one walk over N
 * entities, of one process at a time. A row per partition has the position (here: the
 * losses that it passed) and the need (losses whose entities are to be requested, and how
 * far the search is); every swap writes it whole. An entity is a page. Each loss concerns
 * all entities. ACTS is how many crashes, failed appends and losses beyond the first there
 * may be. The inbox of partition 0 may be blocked, for ever or not. Tokens are in
 * deliver.pml: a former owner's row is refused as a whole.
 *
 * Rules, each with a switch that takes it away:
 *   POS_FIRST    the position passes a loss in the swap that writes the need
 *   PLACE_FIRST  the search moves on, or ends, once the requests are durable
 *   NO_WRAP      a need that joins the walk in the middle goes round
 *   NO_RESTART   more losses begin the search anew, also during a page
 *   EARLY_PAGE   a need joins before a page is read, not after
 *   WAIT_BLOCKED the walk leaves out a partition whose inbox does not answer
 */
#ifndef N
#define N 2
#endif
#ifndef ACTS
#define ACTS 3
#endif
#define bit(i) (1 << (i))
#define all    (bit(N) - 1)
#define of(m)  (((m) & 1) * all + (((m) >> 1) & 1) * (all << N))              /* changes of losses */
#define at1(m, e) (((m) & 1) * bit(e) + (((m) >> 1) & 1) * (bit(e) << N))    /* those of one entity */

typedef Row { byte passed, need, start, at; bool joined, wrapped }
Row row[2], mem[2];
byte inbox[2];                  /* changes that are requested, durably */
byte lost[2];                   /* the losses so far: 1 or 3 */
bool blocked, away[2];          /* the inbox of partition 0; a partition that left the walk */
byte acts = ACTS, place, page, read[2]; /* losses that the page is read for */
bool walking;

#define save(p)   row[p].passed = mem[p].passed; row[p].need = mem[p].need; row[p].start = mem[p].start; row[p].at = mem[p].at; row[p].joined = mem[p].joined; row[p].wrapped = mem[p].wrapped
#define same(p)   (row[p].passed == mem[p].passed && row[p].need == mem[p].need && row[p].start == mem[p].start && row[p].at == mem[p].at && row[p].joined == mem[p].joined && row[p].wrapped == mem[p].wrapped)
#define load(p)   mem[p].passed = row[p].passed; mem[p].need = row[p].need; mem[p].start = row[p].start; mem[p].at = row[p].at; mem[p].joined = row[p].joined; mem[p].wrapped = row[p].wrapped
#define served(p) (mem[p].need && !away[p])
#define honest(p) ((of(row[p].passed & ~row[p].need) & ~inbox[p]) == 0)
#define done(p)   (mem[p].passed == lost[p] && mem[p].need == 0 && same(p))

inline clear(p) { mem[p].need = 0; mem[p].start = 0; mem[p].at = 0; mem[p].joined = false; mem[p].wrapped = false }

inline advance(p) {             /* behind the page */
  if
  :: !mem[p].joined             /* more was lost meanwhile */
  :: mem[p].joined && page == N - 1 ->
     if
#ifndef NO_WRAP
     :: !mem[p].wrapped && mem[p].start != 0 -> mem[p].wrapped = true; mem[p].at = 0
     :: else -> clear(p)
#else
     :: true -> clear(p)
#endif
     fi
  :: mem[p].joined && page < N - 1 ->
     mem[p].at = page + 1;
     if
     :: mem[p].wrapped && page + 1 >= mem[p].start -> clear(p)
     :: else
     fi
  fi
}

inline join(p) {
  if
  :: served(p) && !mem[p].joined -> mem[p].joined = true; mem[p].wrapped = false; mem[p].start = place; mem[p].at = place
  :: else
  fi
}

inline reads(p) {
  read[p] = 0;
  if
  :: served(p) && mem[p].joined && mem[p].at == page -> read[p] = mem[p].need
#ifdef PLACE_FIRST
     ; advance(p)
#endif
  :: else
  fi
}

inline pass(p) {                /* the tail passes what is lost */
  mem[p].need = mem[p].need | (lost[p] & ~mem[p].passed);
  mem[p].passed = lost[p];
#ifdef POS_FIRST
  row[p].passed = lost[p]; assert(honest(p));
#endif
#ifndef NO_RESTART
  mem[p].start = 0; mem[p].at = 0; mem[p].joined = false; mem[p].wrapped = false
#endif
}

inline answer(p) {              /* the requests of the page are durable */
  inbox[p] = inbox[p] | at1(read[p], page);
  read[p] = 0;
#ifndef PLACE_FIRST
  advance(p)
#endif
}

init {
  atomic { lost[0] = 1; lost[1] = 1; if :: blocked = true :: skip fi }
  do
  :: atomic { mem[0].passed != lost[0] -> pass(0) }
  :: atomic { mem[1].passed != lost[1] -> pass(1) }
  :: atomic { acts && lost[0] == 1 -> acts--; lost[0] = 3 }
  :: atomic { acts && lost[1] == 1 -> acts--; lost[1] = 3 }
  /* saved */
  :: atomic { !same(0) -> save(0); assert(honest(0)) }
  :: atomic { !same(1) -> save(1); assert(honest(1)) }
  /* another owner */
  :: atomic { acts -> acts--; load(0); load(1); place = 0; walking = false; read[0] = 0; read[1] = 0; away[0] = false; away[1] = false }
  /* a page is read */
  :: atomic { !walking && (served(0) || served(1)) ->
       if                       /* where the walk is, or where a need is */
       :: served(0) && (!mem[0].joined || mem[0].at == place)
       :: served(1) && (!mem[1].joined || mem[1].at == place)
       :: else -> if
          :: served(0) -> place = mem[0].at
          :: served(1) -> place = mem[1].at
          fi
       fi;
       page = place; join(0); join(1); reads(0); reads(1); walking = true }
  /* the inbox answers */
  :: atomic { walking && read[0] && !blocked -> answer(0) }
  :: atomic { walking && read[1] -> answer(1) }
  :: atomic { acts && walking && read[1] -> acts--; read[1] = 0 }
#ifndef WAIT_BLOCKED
  :: atomic { walking && read[0] && blocked -> read[0] = 0; away[0] = true }
#endif
  :: atomic { acts && blocked -> acts--; blocked = false; away[0] = false }
  :: atomic { walking && !read[0] && !read[1] ->
#ifdef EARLY_PAGE
       if
       :: served(0) && !mem[0].joined -> join(0); advance(0)
       :: else
       fi;
#endif
       walking = false; place = (page + 1) % N }
  :: atomic { done(1) && (done(0) || blocked && away[0] && same(0)) && !walking -> break }
  od
}
