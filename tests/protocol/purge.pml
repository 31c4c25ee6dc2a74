/*
 * The purge of a tombstone: one entity, and one service with a state sink that writes
 * whatever comes. Version 1 is the entity, 2 its deletion, 3 the deletion decided again by
 * a repair, 4 a new entity of the same name. Version 1 is in partition 0; the others are
 * too, or in partition 1 where the inbox was re-partitioned in between. A change is
 * delivered, parked in a row, or lost by retention of the log, which leaves a repair.
 * Position, row and repair are saved together (parking.pml, repair.pml). The purge is
 * requested by what is saved, and decided later. ACTS crashes and failed attempts.
 *
 * Asserted: in the end the sink has the content of the newest change, and no purge removes
 * the new entity.
 *
 * Rules, each with a switch that takes it away:
 *   PURGE_EARLY     the service has received the deletion
 *   PURGE_OTHER     it has also received what the entity's former partition has
 *   PURGE_ROW       no row of the entity is parked
 *   PURGE_REPAIR    no repair searches for the deletion
 *   PURGE_NEWER     what was decided after the request stays
 *   KEEP_ROW        a row ends once a newer change was decided in another partition:
 *                   nothing takes it over
 *   NO_NEWEST       what is read again, and a retry, looks at the dam first
 */
#ifndef ACTS
#define ACTS 3
#endif
#define bit(v)    (1 << (v))
#define has(m, v) (((m) >> (v)) & 1)

byte last;                              /* the partition of versions 2 to 4 */
#define part(v) ((v) == 1 -> 0 : last)
#define of(p)   ((p) == last -> (last -> 28 : 30) : 2)   /* versions of a partition */

typedef Saved { byte done, rows, need }  /* versions that the position passed, parked ones, lost ones to repair */
Saved mem, row;
byte decided = bit(1), dam = 1;         /* the newest version that the dam has; 0: purged, or never was */
byte lost, again = bit(1), asked, sink, acts = ACTS;
bool deleted;                           /* the dam has a tombstone */

#define same     (mem.done == row.done && mem.rows == row.rows && mem.need == row.need)
#define ready(v) (has(decided, v) && !has(mem.done, v) && before(v))
#define before(v) ((v) == 1 || (has(mem.done, 1) || last == 1) && ((v) == 2 || !has(decided, 2) || has(mem.done, 2)) && \
                  ((v) < 4 || !has(decided, 3) || has(mem.done, 3)))
#ifdef NO_NEWEST
#define newer(v) false
#else
#define newer(v) (dam > (v))
#endif

inline pass(v) { mem.done = mem.done | bit(v) }

inline deliver(v) {
  if
  :: has(lost, v) -> pass(v); mem.need = mem.need | bit(v)
  :: !has(lost, v) && (mem.rows & of(part(v))) -> mem.rows = mem.rows & ~of(part(v)) | bit(v); pass(v)   /* takes the row over */
  :: !has(lost, v) && !(mem.rows & of(part(v))) ->
     if
     :: has(again, v) && newer(v) -> pass(v)
     :: !(has(again, v) && newer(v)) -> sink = v; pass(v)
     :: !(has(again, v) && newer(v)) && acts -> acts--; mem.rows = mem.rows | bit(v); pass(v)
     fi
  fi
}

inline retry(v) {
  if
  :: !newer(v) -> sink = v; mem.rows = mem.rows & ~bit(v)
  :: !newer(v) && acts -> acts--
#ifndef KEEP_ROW
  :: newer(v) && part(dam) != part(v) -> mem.rows = mem.rows & ~bit(v)
#endif
  :: newer(v) && part(dam) == part(v)   /* the newer one takes it over */
  fi
}

#ifdef PURGE_EARLY
#define early true
#else
#define early has(row.done, dam)
#endif
#ifdef PURGE_OTHER
#define other true
#else
#define other has(row.done, 1)
#endif
#ifdef PURGE_ROW
#define unparked true
#else
#define unparked (row.rows == 0)
#endif
#ifdef PURGE_REPAIR
#define whole true
#else
#define whole (row.need == 0)
#endif
#ifdef PURGE_NEWER
#define old true
#else
#define old (dam <= asked)
#endif

init {
  if :: last = 0 :: last = 1 fi;
  do
  /* decided: the deletion, and a new entity */
  :: atomic { !has(decided, 2) -> decided = decided | bit(2); dam = 2; deleted = true }
  :: atomic { has(decided, 2) && !has(decided, 4) -> decided = decided | bit(4); dam = 4; deleted = false }
  /* delivered in order of each partition */
  :: atomic { ready(1) -> deliver(1) }
  :: atomic { ready(2) -> deliver(2) }
  :: atomic { ready(3) -> deliver(3) }
  :: atomic { ready(4) -> deliver(4) }
  /* a parked change is tried again */
  :: atomic { has(mem.rows, 1) -> retry(1) }
  :: atomic { has(mem.rows, 2) -> retry(2) }
  :: atomic { has(mem.rows, 3) -> retry(3) }
  :: atomic { has(mem.rows, 4) -> retry(4) }
  /* retention takes the deletion from the log */
  :: atomic { has(decided, 2) && !has(mem.done, 2) && !has(lost, 2) && acts -> acts--; lost = lost | bit(2) }
  /* the repair requests it; decided at once */
  :: atomic { mem.need && same && dam == 2 -> decided = decided | bit(3); dam = 3; mem.need = 0 }
  :: atomic { mem.need && same && dam != 2 -> mem.need = 0 }
  :: atomic { !same -> row.done = mem.done; row.rows = mem.rows; row.need = mem.need }
  :: atomic { acts -> acts--; mem.done = row.done; mem.rows = row.rows; mem.need = row.need; again = decided }
  /* the purge, requested and decided */
  :: atomic { deleted && dam && asked == 0 && early && other && unparked && whole -> asked = dam }
  :: atomic { asked && deleted && dam && old -> dam = 0; asked = 0 }
  :: atomic { asked && dam && !deleted ->
#ifdef PURGE_NEWER
       assert(false);
#endif
       asked = 0 }
  :: atomic { has(decided, 2) && mem.done == decided && mem.rows == 0 && mem.need == 0 && same ->
       if
       :: has(decided, 4) -> assert(sink == 4)
       :: !has(decided, 4) -> assert(sink == 2 || sink == 3)
       fi;
       break }
  od
}
