//go:build verify

package operate_test

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// I1, I2, I9: a command that is killed at any of its boundaries and repeated does its whole
// work, and a request that was made twice has one effect.
func TestCommandsSurviveAKillAtEveryPoint(t *testing.T) {
	for _, point := range crash.OperatorPoints() {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := &world{Project: harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})}
			w.Append("events.jsonl", harness.Many(5, 0, 1)+"{\n")
			w.Drain()
			letter := fmt.Sprint(w.letters(1)[0].ID)
			w.Write("new.json", harness.Event(99, "new", "n"))
			w.say("dlq edit", letter, "--file", w.Path("new.json"))
			command := []string{"replay", "--all", "--outdated=false"}
			if point == crash.LettersReplay || point == crash.LettersReplayed {
				command = []string{"dlq replay", letter}
			} else {
				w.say("reset --yes --all") // so that a replay has something to send
			}
			place := ":1"
			if command[0] == "replay" {
				place = "@replay:1"
			}
			killed := w.StartEnv([]string{"WEIR_CRASH=" + point + place}, command[0], command[1:]...)
			require.Equal(t, -1, killed.Wait(), "it was not killed: %s", killed.Log.String())
			w.say(command[0], command[1:]...)
			w.Drain()
			if command[0] == "replay" {
				for e := range 5 {
					require.NoError(t, w.got("out/acme.jsonl", fmt.Sprint("E", e), "r0", "r0")())
				}
				return
			}
			require.NoError(t, w.got("out/acme.jsonl", "new", "n")())
			require.Empty(t, w.Letters())
			require.Contains(t, w.say("dlq list --state replayed"), letter)
		})
	}
}
