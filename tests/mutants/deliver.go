package main

// The way from the log to the sinks.
var deliverMutants = []mutant{
	{
		rule: "what is below the position is skipped, also inside a frame that overlaps", file: "deliver/worker.go",
		old: "if c.Position() < sl.below {", new: "if false {",
		in: "./deliver", test: "TestAFrameThatOverlapsIsTakenInPart",
	},
	{
		rule: "what is below the position is skipped", file: "deliver/partition.go",
		old: "case of.To <= f.fed:", new: "case false:",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "prev is looked at", file: "deliver/partition.go",
		old: "case of.Part == 0 && of.Prev > f.fed:", new: "case false:",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the last part counts only after the first", file: "deliver/partition.go",
		old: "case of.Part > 0 && (of.Part != f.part || of.To != f.to || of.Cut != f.cut):", new: "case false:",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "parts of another frame do not go on from these", file: "deliver/partition.go",
		old: "of.Part != f.part || of.To != f.to ||", new: "of.Part != f.part ||",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the position moves with the last part", file: "deliver/partition.go",
		old: "if of.Last {", new: "if true {",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the log offset stays at the first part", file: "deliver/partition.go",
		old: "if f.part > 0 {\n\t\treturn f.first", new: "if false {\n\t\treturn f.first",
		in: "./deliver", test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "effect, then position", file: "deliver/worker.go",
		old: "return v.done\n", new: "return true\n",
		in: "./deliver", test: "TestStopWhileTheSinkIsAway",
	},
	{
		rule: "what is done of a frame is saved before the next write", file: "deliver/worker.go",
		old: "if !w.traits.Guarded {\n\t\t\t// Chunk", new: "if false {\n\t\t\t// Chunk",
		in: "./deliver", test: "TestThePositionMovesWithinAFrame",
	},
	{
		rule: "dead letter, then position", file: "deliver/attempt.go",
		old: "if err := w.s.addLetters(a.work, a.stop, []store.DeadLetter{letter}); err != nil {", new: "if err := a.work.Err(); err != nil {",
		in: "./deliver", test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "the row remembers the refused content", file: "deliver/attempt.go",
		old: "Action: change.Refuse, Services: []string{c.Service}, Version: c.Version,", new: "Action: inbox.Refuse, Services: []string{c.Service},",
		in: "./deliver", test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "bisection delivers its second half", file: "deliver/attempt.go",
		old: "todo = todo[half:]", new: "todo = nil",
		in: "./deliver", test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "attempts are bounded", file: "deliver/attempt.go",
		old: ">= a.w.opt.Retry.Attempts", new: "> a.w.opt.Retry.Attempts",
		in: "./deliver", test: "TestBoundedAttemptsEndInALetter",
	},
	{
		rule: "a target that fails for everything is away", file: "deliver/attempt.go",
		old: "return a.rounds <= maxOutageRounds", new: "return false",
		in: "./deliver", test: "TestATargetThatFailsForEverythingIsAway",
	},
	{
		rule: "one letter stands for a content", file: "deliver/attempt.go",
		old: "hex.EncodeToString(c.Content)", new: "hex.EncodeToString([]byte(c.Key))",
		in: "./deliver", test: "TestI9OneLetterForAContent",
	},
	{
		rule: "newest only, when it is tried again", file: "deliver/attempt.go",
		old: "if newer <= v.change.Version {", new: "if newer <= v.change.Version || true {",
		in: "./deliver", test: "TestRetryLeavesOutWhatWasOvertaken",
	},
	{
		rule: "newest only, for what may have been in hand before", file: "deliver/worker.go",
		old: "if v.slice.redelivered && rows[c.Entity].Version > c.Version {", new: "if false {",
		in: "./deliver", test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "what a take-over published may have been in hand before", file: "deliver/partition.go",
		old: " || r.HeaderBytes(change.RepublishedHeader) != nil", new: "",
		in: "./deliver", test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "a state sink gets the newest of what is in hand", file: "deliver/worker.go",
		old: "if n == v {\n\t\t\treturn false", new: "if n == v || true {\n\t\t\treturn false",
		in: "./deliver", test: "TestAFrameIsCoalescedAsAWhole",
	},
	{
		rule: "the token of the row of a partition", file: "deliver/save.go",
		old: "if !done[i] {\n\t\t\tif !p.gone {", new: "if !done[i] {\n\t\t\tif false {",
		in: "./deliver", test: "TestASwapThatFailsEndsTheOwner",
	},
	{
		rule: "a swap of unknown outcome is resolved by the row's token", file: "deliver/save.go",
		old: "p.token, p.saved, p.stored = t.token, t.positions, t.edits", new: "p.saved, p.stored = t.positions, t.edits",
		in: "./deliver", test: "TestASaveWhoseAnswerIsLost",
	},
	{
		rule: "frames above the watermark do not count", file: "deliver/partition.go",
		old: "f.counts = look.Counts(p.number, f.Revision, f.From, f.To)", new: "f.counts = true || look.Counts(p.number, f.Revision, f.From, f.To)",
		in: "./deliver", test: "TestAFrameOfALostFutureIsPassedOver",
	},
	{
		rule: "the watermark is read after the frame", file: "deliver/save.go",
		old: "l.of > before", new: "l.of >= before",
		in: "./deliver", test: "TestALookBeginsAfterItsCaller",
	},
	{
		rule: "an old process takes no newer frame", file: "deliver/partition.go",
		old: "} else if f.Revision > s.opt.Revision {", new: "} else if false {",
		in: "./deliver", test: "TestAFrameOfANewerRevisionIsNotDelivered",
	},
	{
		rule: "the repair looks at the outbox", file: "deliver/bridge.go",
		old: "if from.judge(f) != follows {\n\t\t\tcontinue", new: "if true {\n\t\t\tcontinue",
		in: "./deliver", test: "TestWhatIsNotPublishedYetIsTakenFromTheOutbox",
	},
	{
		rule: "the repair reads the log to its end first", file: "deliver/bridge.go",
		old: "if !over {\n\t\treturn false, s.repair", new: "if true {\n\t\treturn false, s.repair",
		in: "./deliver", test: "TestALaterFrameThatGoesOn",
	},
	{
		rule: "the repair asks for what is missing", file: "deliver/bridge.go",
		old: "if err := g.redecide(ctx); err != nil {", new: "if err := ctx.Err(); err != nil {",
		in: "./deliver", test: "TestWhatIsGoneFromTheLogIsDecidedAgain",
	},
	{
		rule: "the position waits until what is missing is decided", file: "deliver/bridge.go",
		old: "if left == 0 {", new: "if left >= 0 {",
		in: "./deliver", test: "TestThePositionWaitsForWhatIsGone",
	},
	{
		rule: "the log's end is compared with the last to", file: "deliver/bridge.go",
		old: "p.checking || p.feed.fed >= to {", new: "true {",
		in: "./deliver", test: "TestALogThatEndsTooEarly",
	},
	{
		rule: "who catches up during a repair is repaired", file: "deliver/bridge.go",
		old: "for service := range g.positions {\n\t\t\trepaired[service] = true", new: "for _, c := range l.p.cursors {\n\t\t\trepaired[c.w.opt.Number] = true",
		in: "./deliver", test: "TestWhoCatchesUpDuringARepairIsRepaired",
	},
	{
		rule: "who is behind skips nothing to a later copy", file: "deliver/catchup.go",
		old: "o != c && o.feed.next != f.offset", new: "o.feed.next > f.offset && o != c",
		in: "./deliver", test: "TestWhoIsBehindSkipsNothingToALaterCopy",
	},
	{
		rule: "a part counts behind the first part of its own cut", file: "deliver/partition.go",
		old: " || of.Cut != f.cut):", new: "):",
		in: "./deliver", test: "TestPartsOfTwoCuts",
	},
	{
		rule: "the same first part begins no position again", file: "deliver/partition.go",
		old: "of.To == f.to && of.Cut == f.cut:", new: "of.To == f.to && of.Cut == f.cut && false:",
		in: "./deliver", test: "TestAPositionIsNotBegunAgainWithTheSameFirstPart",
	},
	{
		rule: "what lies before a frame that only the outbox has is repaired", file: "deliver/bridge.go",
		old: "return of.Prev, nil", new: "return 0, nil",
		in: "./deliver", test: "TestAnOutboxBehindAGap",
	},
	{
		rule: "who is behind joins where it is itself", file: "deliver/partition.go",
		old: "return f.part == 0 && f.fed >= tail.border()", new: "return f.part == 0 && f.fed >= tail.border() || true",
		in: "./deliver", test: "TestAServiceWhoseSinkIsAwayFallsBehind",
	},
	{
		rule: "who is behind does not join in the middle of a position", file: "deliver/partition.go",
		old: "return f.to\n", new: "return f.fed + 1\n",
		in: "./deliver", test: "TestWhoIsBehindJoinsBetweenPositions",
	},
	{
		rule: "who is behind follows to where it may join", file: "deliver/catchup.go",
		old: "to := p.feed.border()", new: "to := p.feed.fed",
		in: "./deliver", test: "TestEveryServiceIsAwayInsideAPosition",
	},
	{
		rule: "what left the outbox is looked for in the log", file: "deliver/bridge.go",
		old: "if now != end || err != nil {", new: "if now < 0 || err != nil {",
		in: "./deliver", test: "TestABridgeAtTheEndLooksWhereThatIs",
	},
	{
		rule: "who falls behind a tail that it was ahead of waits for no part of a position that it has", file: "deliver/partition.go",
		old: "if f.fed = max(f.fed, fed); f.to <= f.fed {", new: "if f.fed = max(f.fed, fed); f.part < 0 {",
		in: "./deliver", test: "TestWhoFallsBehindIsAtItsFarthest",
	},
	{
		rule: "who catches up goes on inside a position that was cut into parts", file: "deliver/catchup.go",
		old: "reader.Read(within, p.number, was.next)", new: "reader.Read(within, p.number, was.offset())",
		in: "./tests/simulation", test: "TestSchedules",
	},
	{
		rule: "positions outlive the configuration without their service", file: "deliver/partition.go",
		old: "p.parked = append(p.parked, sp)", new: "_ = sp",
		in: "./deliver", test: "TestAServiceThatComesBack",
	},
	{
		rule: "a take-over that fails waits as a write does", file: "deliver/worker.go",
		old: "if !w.await(stop, e, pause.NextBackOff()) {", new: "if !e.Await(stop, pause.NextBackOff()) {",
		in: "./deliver", test: "TestAFailedResumeIsProbedAndSuspended",
	},
	{
		rule: "a first mark is saved before the first write", file: "deliver/resume.go",
		old: "return w.s.saver.await(work, batch)", new: "return nil",
		in: "./deliver", test: "TestASuccessorFindsWhatWasWritten",
	},
	{
		rule: "a mark is saved with a position above all that was written", file: "deliver/resume.go",
		old: "c.position().Version > above {", new: "true || c.position().Version > above {",
		in: "./deliver", test: "TestAMarkIsNotAheadOfItsPosition",
	},
	{
		rule: "what waits is apart from its frame", file: "deliver/partition.go",
		old: "if len(c.w.queue) > 0 && s.kept > 2*s.opt.Memory {", new: "if false {",
		in: "./deliver", test: "TestI7WhatWaitsIsApartFromItsFrame",
	},
	{
		rule: "what falls behind is released", file: "deliver/partition.go",
		old: "clear(w.queue)", new: "_ = w.queue",
		in: "./deliver", test: "TestI7WhatFallsBehindIsReleased",
	},
	{
		rule: "what a dead sink has in hand does not fill the room", file: "deliver/partition.go",
		old: "if s.held <= stuck ||", new: "if s.held == 0*stuck ||",
		in: "./deliver", test: "TestASuspendedServiceDoesNotHoldUpALargeChange",
	},
	{
		rule: "a log sink is owed older versions, too", file: "deliver/worker.go",
		old: "if !state {\n\t\t\tk.version = c.Version\n\t\t}", new: "",
		in: "./deliver", test: "TestALogSinkGetsAnOlderChangeOfAnotherPartition",
	},
}
