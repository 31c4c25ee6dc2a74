/*
 * A fence by source: one session of a slot is heard at a time. One row of a table, K commits that
 * write or delete it, one partition of the inbox, S sessions. A session takes the next number in the
 * store, appends a barrier with it, waits until that is decided, and reads back what was decided of
 * the source. What a session appends may become durable after its death. Commit n has place 2n, the
 * row of a snapshot behind n commits 2n+1. ACTS deaths, lost connections, movements of the slot by
 * another program, a fail-over that loses a commit, a backup and a restore of the store.
 *
 * Asserted: in the end the document is the row, and the last session was not fenced for ever; without
 * a fail-over no effect is older than the one before it.
 *
 * RESTORES leaves out all faults but a backup and a restore.
 *
 * Rules, each with a switch that takes it away:
 *   NO_FLOOR     an event of another session than the floor's is stale
 *   NO_READBACK  a session whose barrier did not raise the floor takes a number above that
 *   NO_SEEN      a place that was accepted and that the database has lost is a gap
 *   NO_EPOCH     an epoch that was accepted and is newer than the row's is a gap
 *   NO_LINE      what was confirmed and the database has lost is a gap
 *   NO_TORN      a barrier with a number that the row lacks tears the row: the next session has a gap
 *   NO_CAS       how far everything is durable is stored by compare-and-swap
 *   NO_LEFT_OUT  changes below the first rows are left out (with NO_FLOOR alone they would be needed)
 */
#ifndef K
#define K 2
#endif
#ifndef S
#define S 2
#endif
#ifndef ACTS
#define ACTS 2
#endif
#define N 12                      /* records of the inbox that are kept */
byte log[4], le, number;          /* commits: number<<1 | deletes */
#define row(n) ((n) == 0 || (log[n] & 1) -> 0 : log[n])
byte tl = 1, cut = 255;           /* the timeline; where the first one ended */
byte slot, holder;                /* what the slot confirmed, and who streams */
bool failed;
typedef Rec { byte kind, num, uid, ep, tl, place, val }   /* kind 1: barrier, 2: event */
Rec in[N]; byte ie;
Rec fly[4];                       /* of a session, in flight; kind 0: none */
/* row of the slot; floor, seen; document and fence of the entity; what was decided */
typedef Store { byte ver, num, uid, ep, conf, ctl; bool torn, done; byte fnum, fuid, sep, stl, splace, doc, eep, eplace, effect, dec }
Store s, b; bool kept;
byte acts = ACTS, begun;
bool dead[4], had[4];
byte ver[4], num[4], ep[4], pos[4], acked[4], conf[4]; bool gap[4];
byte i, x;
#define last (begun == S && acts == 0)
#define quiet (fly[1].kind == 0 && fly[2].kind == 0 && fly[3].kind == 0 && s.dec == ie)

inline copy(to, o) {
  to.kind = o.kind; to.num = o.num; to.uid = o.uid; to.ep = o.ep; to.tl = o.tl; to.place = o.place; to.val = o.val
}
inline clear(o) { o.kind = 0; o.num = 0; o.uid = 0; o.ep = 0; o.tl = 0; o.place = 0; o.val = 0 }
inline save(to, o) {
  to.ver = o.ver; to.num = o.num; to.uid = o.uid; to.ep = o.ep; to.conf = o.conf; to.ctl = o.ctl; to.torn = o.torn; to.done = o.done;
  to.fnum = o.fnum; to.fuid = o.fuid; to.sep = o.sep; to.stl = o.stl; to.splace = o.splace;
  to.doc = o.doc; to.eep = o.eep; to.eplace = o.eplace; to.effect = o.effect; to.dec = o.dec
}
inline put(k, e, t, p, v) {
  fly[me].kind = k; fly[me].num = num[me]; fly[me].uid = me; fly[me].ep = e; fly[me].tl = t; fly[me].place = p; fly[me].val = v
}
inline land(n) { copy(in[ie], fly[n]); ie++; clear(fly[n]) }
/* forgets records that no store will decide again */
inline trim() {
  do
  :: ie > 0 && s.dec > 0 && (!kept || b.dec > 0) ->
     x = 0;
     do :: x + 1 < ie -> copy(in[x], in[x+1]); x++ :: else -> break od;
     ie--; clear(in[ie]); s.dec--;
     if :: kept -> b.dec-- :: else fi
  :: else -> break
  od;
  x = 0
}

#ifdef NO_CAS
#define may true
#else
#define may (s.num == num[me] && s.uid == me && s.ver == ver[me])
#endif
#define wrote s.ver++; ver[me] = s.ver
#define lost (tl == 2 && s.stl == 1 && s.splace / 2 > cut)
#define line(place) ((place) <= cut -> 1 : tl)
#define mine (s.fnum == num[me] && s.fuid == me)
#define held (s.num == num[me] && s.uid == me && s.ver == ver[me])

active proctype Decide() {
end:
  do
  :: d_step { s.dec < ie ->
     i = s.dec; s.dec++;
     if
     :: in[i].kind == 1 ->
        if :: in[i].num > s.fnum -> s.fnum = in[i].num; s.fuid = in[i].uid :: else fi;
#ifndef NO_TORN
        if :: in[i].num > s.num || (in[i].num == s.num && in[i].uid != s.uid) -> s.num = in[i].num; s.uid = in[i].uid; s.torn = true; s.ver++ :: else fi
#endif
     :: else ->
        if
#ifdef NO_FLOOR
        :: true ->
#else
        :: in[i].num == s.fnum && in[i].uid == s.fuid ->
#endif
           if
           :: in[i].ep > s.sep || (in[i].ep == s.sep && (in[i].tl > s.stl || (in[i].tl == s.stl && in[i].place > s.splace))) ->
              s.sep = in[i].ep; s.stl = in[i].tl; s.splace = in[i].place
           :: else
           fi;
           if
           :: in[i].ep > s.eep || (in[i].ep == s.eep && in[i].place > s.eplace) ->
              s.eep = in[i].ep; s.eplace = in[i].place;
              x = in[i].val;
              if :: x > 1 && !failed -> assert((x >> 1) >= s.effect); s.effect = x >> 1 :: else fi;
              s.doc = (x & 1 -> 0 : x)
           :: else
           fi
#ifndef NO_FLOOR
        :: else
#endif
        fi
     fi;
     i = 0; x = 0;
     trim()
     }
  od
}

proctype Session(byte me) {
  byte L;
  {
    d_step { num[me] = s.num + 1; s.num = num[me]; s.uid = me; wrote }
again:
    true;
    d_step { fly[me].kind == 0 -> put(1, 0, 0, 0, 0) }
    fly[me].kind == 0 && s.dec == ie;
    if
#ifndef NO_READBACK
    :: d_step { !mine && held -> num[me] = s.fnum + 1; s.num = num[me]; wrote } -> goto again
    :: !held -> goto ended                             /* restored, torn, or taken over */
    :: d_step { mine && held && (holder == 0 || dead[holder]) -> holder = me; had[me] = true;
#else
    :: d_step { (holder == 0 || dead[holder]) -> holder = me; had[me] = true;
#endif
       gap[me] = s.torn || !s.done || slot > s.conf;
#ifndef NO_LINE
       gap[me] = gap[me] || (tl == 2 && s.ctl == 1 && s.conf > cut);
#endif
#ifndef NO_SEEN
       gap[me] = gap[me] || lost;
#endif
#ifndef NO_EPOCH
       gap[me] = gap[me] || s.sep > s.ep;
#endif
       if
       :: gap[me] && held -> s.ep = num[me]; s.conf = slot; s.ctl = line(slot); s.torn = false; s.done = false; wrote
       :: else
       fi;
       ep[me] = s.ep; conf[me] = s.conf; pos[me] = slot; acked[me] = slot }
    fi;
    /* rows, and the deletion of what has none */
    if
    :: gap[me] ->
       d_step { holder == me -> L = le; if :: row(L) -> put(2, ep[me], tl, 2*L+1, row(L)) :: else fi }
       d_step { fly[me].kind == 0 && s.dec == ie -> if :: s.doc -> put(2, ep[me], tl, 2*L+1, 1) :: else fi }
       if
       :: d_step { fly[me].kind == 0 && may -> s.done = true; wrote }
       :: fly[me].kind == 0 && !may -> goto ended
       fi;
#ifndef NO_LEFT_OUT
       if :: L > pos[me] -> pos[me] = L; acked[me] = L :: else fi
#endif
    :: else
    fi;
    /* changes from the slot on */
    do
    :: d_step { holder == me && fly[me].kind == 0 && pos[me] < le -> pos[me]++; put(2, ep[me], line(pos[me]), 2*pos[me], log[pos[me]]) }
    :: d_step { fly[me].kind == 0 && acked[me] < pos[me] -> acked[me] = pos[me] }
    :: d_step { acked[me] > conf[me] && may -> if :: acked[me] > s.conf -> s.conf = acked[me]; s.ctl = line(acked[me]) :: else fi; conf[me] = acked[me]; wrote }
    :: d_step { holder == me && conf[me] == acked[me] && slot < acked[me] -> slot = acked[me] }
    :: !may && fly[me].kind == 0 -> break
    :: holder != me && fly[me].kind == 0 && acked[me] == pos[me] && acked[me] == conf[me] -> break
    :: d_step { last && holder == me && pos[me] == le && le == K && acked[me] == pos[me] && conf[me] == acked[me] && quiet && may -> assert(s.doc == row(le)) } -> break
    od
  } unless { dead[me] };
ended:
  true;
  d_step { dead[me] = true; had[me] = false; ver[me] = 0; num[me] = 0; ep[me] = 0; pos[me] = 0; acked[me] = 0; conf[me] = 0; gap[me] = false; L = 0;
    if :: holder == me -> holder = 0 :: else fi }
}

active proctype World() {
end:
  do
  :: d_step { le < K -> le++; number++; log[le] = number << 1 }
  :: d_step { le < K -> le++; number++; log[le] = number << 1 | 1 }
  :: atomic { begun < S -> begun++; run Session(begun) }
#ifndef RESTORES
  :: d_step { acts > 0 && begun > 0 && !dead[begun] && begun < S -> acts--; dead[begun] = true }
#endif
  :: d_step { begun > 1 && !dead[begun-1] && holder != begun-1 -> dead[begun-1] = true }
  :: d_step { begun > 2 && !dead[begun-2] && holder != begun-2 -> dead[begun-2] = true }
#ifndef RESTORES
  :: d_step { acts > 0 && tl == 1 && le > 0 && begun < S -> acts--; failed = true; tl = 2; log[le] = 0; le--; cut = le; slot = (slot > le -> le : slot); holder = 0; dead[1] = begun >= 1; dead[2] = begun >= 2 }
#endif
  :: d_step { acts > 0 && !kept -> acts--; kept = true; save(b, s) }
  :: d_step { acts > 0 && kept && begun < S -> acts--; save(s, b); trim() }
#ifndef RESTORES
  :: d_step { acts > 0 && holder && begun < S -> acts--; holder = 0 }                    /* its connection ends; it may still store a mark */
#endif
  :: d_step { begun == S && holder && holder != S -> holder = 0 }                        /* at last */
#ifndef RESTORES
  :: d_step { acts > 0 && holder == 0 && slot < le && begun < S -> acts--; slot = le }   /* another program moves the slot */
#endif
  :: d_step { acts > 0 -> acts-- }                                                       /* nothing more happens */
  :: d_step { fly[1].kind && ie < N -> land(1) }
  :: d_step { fly[2].kind && ie < N -> land(2) }
  :: d_step { fly[3].kind && ie < N -> land(3) }
  od
}
