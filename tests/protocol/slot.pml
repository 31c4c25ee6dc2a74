/*
 * The hand-over of a table from rows to the changes of a replication slot. One row, of K commits,
 * each of which writes or deletes it. A reader compares slot and mark, reads the row in a snapshot,
 * deletes what a gap left, and applies changes from the slot on. Commit n has place 2n, the row of a
 * snapshot behind n commits 2n+1; the fence of an epoch drops what is not above its last place.
 * Append and decision are one step. ACTS crashes of the reader, losses of the slot, readings of it
 * by another program, backups and restores of the store; with COPY instead of the last two copies
 * of the database's files, and restores of them, once the mark has a change that was read behind the
 * rows, and all that is durable.
 *
 * Asserted: in the end the document is the row; without COPY no effect is older than the one before
 * it, and there is no gap without a cause.
 *
 * Rules, each with a switch that takes it away:
 *   ROWS_FIRST     the slot is older than the snapshot
 *   ROWS_PLACE     rows have the place before the snapshot's position
 *   ROWS_LOW       ... and not a lower one
 *   CONFIRM_EARLY  the slot moves when the changes are durable
 *   SLOT_FIRST     the mark is stored before the slot is confirmed
 *   NO_GAP         a slot ahead of the mark is a gap
 *   NO_SWEEP       after a gap, stored entities without a row are deleted
 *   SWEEP_LAST     ... at the place of the first rows
 *   NO_EXPECT      the last transaction, sent again, is the same
 *   MOVE_BY_MARK   the slot moves by what this session read, not by the mark
 */
#ifndef K
#define K 3
#endif
#ifndef ACTS
#define ACTS 3
#endif
byte log[8], le, number;                /* commits: number and whether it deletes; the log's end */
#define row(n)   ((n) == 0 || (log[n] & 1) -> 0 : log[n])
byte slot; bool has;                    /* what it confirmed; whether there is one */
typedef Store { byte epoch, conf, rows, last, lastAt, since, doc, effect; bool again, readRow, readAll, diverged; byte fence[6] }
Store s, backup; bool kept;
byte copyLog[8], copyEnd, copySlot; bool copied, copyHas;
bool cause, made;                       /* of a gap; a slot that was re-created begins at a byte that no mark has */
byte st, pos, acked, expected, sp, seen, since, acts = ACTS, j;
#define quiet (acts == 0 && le == K && st == 6 && pos == le && s.conf == slot && slot >= acked)

#ifdef NO_GAP
#define gap false
#else
#define gap (slot > s.conf || made)
#endif
#ifdef SLOT_FIRST
#define first   (slot >= acked)
#define confirm acked
#else
#define first   true
#ifdef MOVE_BY_MARK
#define confirm s.conf
#else
#define confirm (acked < s.conf -> acked : s.conf)
#endif
#endif

inline apply(p, v) {
  if
  :: p > s.fence[s.epoch] ->
     s.fence[s.epoch] = p;
#ifndef COPY
     assert((v >> 1) >= s.effect);
#endif
     s.effect = v >> 1;
     s.doc = ((v) & 1 -> 0 : v)
  :: else
  fi
}

inline begin() {
  if
  :: s.epoch == 0 || gap || le < s.conf || le < s.rows || s.diverged ->
     if :: s.epoch && !s.diverged && le >= s.conf && le >= s.rows -> assert(cause) :: else fi;
     s.again = (s.epoch > 0); s.epoch++;
     s.conf = slot; s.rows = 0; s.lastAt = 0; s.since = 0; s.readRow = false; s.readAll = false; s.diverged = false
  :: else
  fi;
  made = false; pos = slot; acked = slot; since = s.since;
#ifndef NO_EXPECT
  expected = (s.lastAt > slot -> s.lastAt : 0);
#endif
  st = (s.readAll -> 6 : 1)
}

inline export() {
  seen = row(le); s.rows = le;
#ifdef ROWS_PLACE
  sp = 2*le + 2;
#else
#ifdef ROWS_LOW
  sp = 1;
#else
  sp = 2*le + 1;
#endif
#endif
#ifndef SWEEP_LAST
  if :: since == 0 -> since = sp :: else fi
#else
  since = sp
#endif
}

active proctype Reader() {
  do
#ifdef ROWS_FIRST
  :: d_step { st == 0 && !has && s.epoch == 0 -> export(); st = 7 }
  :: d_step { st == 7 -> slot = le; has = true; begin(); st = 2 }
#else
  :: d_step { st == 0 && !has && s.epoch == 0 -> slot = le; has = true }
#endif
  :: d_step { st == 0 && has -> begin() }
  :: d_step { st == 1 -> export(); st = (s.readRow -> 4 : 2) }
  :: d_step { st == 2 -> if :: seen -> apply(sp, seen) :: else fi; st = 3 }
  :: d_step { st == 3 -> s.readRow = true; s.since = since; st = 4 }
  :: d_step { st == 4 ->
#ifndef NO_SWEEP
     if :: s.again && since > s.fence[s.epoch] -> s.fence[s.epoch] = since; s.doc = 0 :: else fi;
#endif
     st = 5 }
  :: d_step { st == 5 -> s.readAll = true; st = 6 }
  :: d_step { st == 6 && has && pos < le ->
     pos++;
     if :: expected == pos && log[pos] == s.last -> expected = 0 :: else fi;
     if
     :: expected && pos >= expected -> s.diverged = true; st = 0
     :: else -> apply(2*pos, log[pos]); acked = pos
     fi }
  :: d_step { st == 6 && acked > s.conf && first -> s.conf = acked; s.lastAt = acked; s.last = log[acked] }
  :: d_step { st == 6 && has && slot < confirm -> slot = confirm }
#ifdef CONFIRM_EARLY
  :: d_step { st == 6 && has && slot < le && expected == 0 -> slot = le; s.conf = le }
#endif
  :: d_step { acts > 0 -> acts--; st = 0 }                                                  /* crash */
  :: d_step { !has && st == 6 -> st = 0 }                                                   /* the connection ends */
  :: d_step { quiet -> assert(s.doc == row(le)) } -> break
  od
}

active proctype World() {
  do
  :: d_step { le < K -> le++; number++; log[le] = number << 1 }
  :: d_step { le < K -> le++; number++; log[le] = number << 1 | 1 }
  :: d_step { acts > 0 && has -> acts--; has = false; st = 0 }
  :: d_step { !has && s.epoch > 0 -> slot = le; has = true; made = true; cause = true }     /* weir source prepare */
#ifndef COPY
  :: d_step { acts > 0 && has && st != 6 -> acts--; slot = le; cause = true; st = 0 }       /* another program reads it */
  :: d_step { acts > 0 -> acts--; backup.epoch = s.epoch; backup.conf = s.conf; backup.rows = s.rows; backup.last = s.last; backup.lastAt = s.lastAt;
     backup.since = s.since; backup.doc = s.doc; backup.effect = s.effect; backup.again = s.again; backup.readRow = s.readRow; backup.readAll = s.readAll;
     j = 0; do :: j < 6 -> backup.fence[j] = s.fence[j]; j++ :: else -> break od; j = 0; kept = true }
  :: d_step { acts > 0 && kept && backup.epoch -> acts--; cause = true; s.epoch = backup.epoch; s.conf = backup.conf; s.rows = backup.rows; s.last = backup.last; s.lastAt = backup.lastAt;
     s.since = backup.since; s.doc = backup.doc; s.effect = backup.effect; s.again = backup.again; s.readRow = backup.readRow; s.readAll = backup.readAll; s.diverged = false;
     j = 0; do :: j < 6 -> s.fence[j] = backup.fence[j]; j++ :: else -> break od; j = 0; st = 0 }
#else
  :: d_step { acts > 0 && s.readAll && !copied -> acts--; copyEnd = le; copySlot = slot; copyHas = has; copied = true;
     j = 0; do :: j <= le -> copyLog[j] = log[j]; j++ :: else -> break od; j = 0 }
  :: d_step { acts > 0 && copied && s.readAll && s.lastAt > s.rows && s.fence[s.epoch] == 2*s.lastAt -> acts--; cause = true; le = copyEnd; slot = copySlot; has = copyHas; st = 0;
     j = 0; do :: j <= le -> log[j] = copyLog[j]; j++ :: else -> break od; j = 0 }
#endif
  :: quiet -> break
  od
}
