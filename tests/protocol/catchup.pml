/*
 * Catch-up: one reader of the log for all services of a partition that are
 * behind, beside a tail that never ends. Does everybody arrive whose sink
 * answers? deliver.pml tells that nothing is lost on the way; here are only
 * distances to the tail, in frames, of two services. Retention keeps D frames,
 * so nobody is further away: a gap is passed.
 *
 * A sink answers; takes nothing and keeps what it has in hand (hangs); is dead,
 * and a probe says so; or answers the probe and then fails, time and again
 * (flaps). What speeds are assumed: sinks that answer are faster than the tail,
 * and while the tail takes one frame the reader can read two for each service.
 * Every process gets its turn (weak fairness), nothing else is promised.
 *
 * Rules, each with a switch that takes it away:
 *   NO_TURNS   whoever is furthest back and has room is read for first, always
 *   LONG_TURN  a turn has no end while its service has room
 *   NO_JUMP    the reader waits until the service there has room
 *   NO_WAIT    the tail does not wait for a service that has reached it
 *   WAIT_ALL   the tail waits for it whatever its sink does
 */
#ifndef D
#define D 4             /* frames that the log keeps */
#endif
#ifndef ROOM
#define ROOM 2          /* budget of a service, in frames */
#endif
#define TURN 2          /* frames of a turn */
#ifndef ACTS
#define ACTS 1          /* how often a sink changes its mind */
#endif
#define ANSWERS 0
#define HANGS   1
#define DEAD    2
#define FLAPS   3

byte kind[2], dist[2], buf[2];  /* per service: sink; frames not read for it; in hand */
bool live[2], moved;
byte cur, used, reads;          /* whose turn, frames of it; frames read since the tail's last */
byte acts = ACTS;

#define room(c)   (!live[c] && kind[c] != DEAD && dist[c] > 0 && buf[c] < ROOM)
#define other     (1 - cur)
#define idle      (!room(0) && !room(1))
#define behind(c) (kind[c] == ANSWERS && !live[c])
#define fast(c)   (live[c] || kind[c] != ANSWERS || buf[c] == 0)
#ifdef NO_WAIT
#define awaited(c) false
#else
#ifdef WAIT_ALL
#define awaited(c) (!live[c] && dist[c] == 0)
#else
#define awaited(c) (behind(c) && dist[c] == 0)
#endif
#endif

inline fall(c) { if :: !live[c] && dist[c] + buf[c] < D -> dist[c]++ :: else fi }

active proctype Tail() {
  do
  :: d_step { (reads >= 2*TURN || idle) && fast(0) && fast(1) && !awaited(0) && !awaited(1) ->
     fall(0); fall(1); reads = 0; moved = !moved }
  od
}

/* One frame, for the service at that position and for whoever else stands there. */
inline read(c) {
  if :: room(1 - c) && dist[1 - c] == dist[c] -> dist[1 - c]--; buf[1 - c]++ :: else fi;
  dist[c]--; buf[c]++;
  if :: reads < 2*TURN -> reads++ :: else fi
}

active proctype Reader() {
  do
#ifdef NO_TURNS
  :: d_step { room(0) && (!room(1) || dist[0] >= dist[1]) -> read(0) }
  :: d_step { room(1) && (!room(0) || dist[1] > dist[0]) -> read(1) }
#else
#ifdef LONG_TURN
  :: d_step { room(cur) -> read(cur) }
#else
  :: d_step { room(cur) && used < TURN -> read(cur); used++ }
  :: d_step { room(cur) && used == TURN && !room(other) -> used = 0 }
  :: d_step { room(cur) && used == TURN && room(other) -> cur = other; used = 0 }
#endif
#ifdef NO_JUMP
  :: d_step { (live[cur] || kind[cur] == DEAD || dist[cur] == 0) && room(other) -> cur = other; used = 0 }
#else
  :: d_step { !room(cur) && room(other) -> cur = other; used = 0 }
#endif
#endif
  od
}

proctype Sink(byte c) {
  do
  :: d_step { kind[c] == ANSWERS && buf[c] -> buf[c]-- }
  :: d_step { (kind[c] == DEAD || kind[c] == FLAPS) && buf[c] -> dist[c] = dist[c] + buf[c]; buf[c] = 0 }   /* what is in hand is dropped */
  :: d_step { behind(c) && dist[c] == 0 && buf[c] == 0 -> live[c] = true }
  :: d_step { live[c] && kind[c] != ANSWERS -> live[c] = false }
  od
}

active proctype Adversary() {
  byte k;
  do
  :: acts -> atomic { acts--; select(k : 0 .. 3); kind[0] = k; k = 0 }
  :: acts -> atomic { acts--; select(k : 0 .. 3); kind[1] = k; k = 0 }
  :: acts -> acts--
  :: acts == 0 -> break
  od
}

init {
  byte k;
  atomic {
    select(k : 0 .. 3); kind[0] = k; select(k : 0 .. 3); kind[1] = k;
    select(k : 0 .. D); dist[0] = k; select(k : 0 .. D); dist[1] = k; k = 0;
    run Sink(0); run Sink(1)
  }
}

/* Nobody whose sink answers stays behind for ever, and nobody stops the tail. */
ltl arrives { !<>[]behind(0) && !<>[]behind(1) && []<>moved && []<>!moved }
