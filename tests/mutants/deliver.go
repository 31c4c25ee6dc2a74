package main

// deliverMutants are of the way from the changes log to the sinks.
var deliverMutants = []mutant{
	{
		rule: "what is below the position is skipped, also inside a frame that overlaps", in: "deliver", fn: "worker.decode",
		find: "if _1._2() < _3._4 {", put: "if false {",
		test: "TestAFrameThatOverlapsIsTakenInPart",
	},
	{
		rule: "what is below the position is skipped", in: "deliver", fn: "feed.judge",
		find: "case _1._2 <= _3._4:", put: "case false:",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "prev is looked at", in: "deliver", fn: "feed.judge",
		find: "case _1._2 == 0 && _1._3 > _4._5:", put: "case false:",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the last part counts only after the first", in: "deliver", fn: "feed.judge",
		find: "case _1._2 > 0 && (_1._2 != _3._4 || _1._5 != _3._6 || _1._7 != _3._8):", put: "case false:",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "parts of another frame do not go on from these", in: "deliver", fn: "feed.judge",
		find: "_1._2 != _3._4 || _1._5 != _3._6 ||", put: "_1._2 != _3._4 ||",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the position moves with the last part", in: "deliver", fn: "feed.pass",
		find: "if _1._2 {", put: "if true {",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "the log offset stays at the first part", in: "deliver", fn: "feed.offset",
		find: "if _1._2 > 0 {\n\t\treturn _1._3", put: "if false {\n\t\treturn _1._3",
		test: "TestAFeedFollowsItsFrames",
	},
	{
		rule: "effect, then position", in: "deliver", fn: "delivery.settled",
		find: "return _1._2\n", put: "return true\n",
		test: "TestStopWhileTheSinkIsAway",
	},
	{
		rule: "what took effect is saved before the next write", in: "deliver", fn: "worker.attempt",
		find: "if !_1._2._3 && slices.Contains(_4, nil) {", put: "if false && slices.Contains(_4, nil) {",
		test: "TestThePositionMovesWithinAFrame",
	},
	{
		rule: "dead letter with the position", in: "deliver", fn: "worker.apply",
		find: "p.edit(w.key(e.Item), rowEdit{letter: v.letter, parked: e.Item.Parked})", put: "_ = p",
		test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "the row remembers the refused content", in: "deliver", fn: "worker.deadLetter",
		find: "Services: []string{c.Service}, Version: c.Version,", put: "Services: []string{c.Service},",
		test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "a write that failed as a whole is halved", in: "deliver/core", fn: "Service.nothing",
		find: "s.limit = max(1, len(step.Items)/2)", put: "s.limit = len(step.Items)",
		test: "TestI13OneEntityFailsForever",
	},
	{
		rule: "attempts are bounded", in: "deliver/core", fn: "Service.retryFailed",
		find: "} else if i.Attempts >= s.cfg.Attempts {", put: "} else if i.Attempts > s.cfg.Attempts {",
		test: "TestAttemptsAreBounded",
	},
	{
		rule: "a success in the same attempt proves nothing", in: "deliver/core", fn: "Service.evidence",
		find: "|| i.tried >= s.attempt", put: "",
		test: "TestEvidenceBeginsAfterTheFailure",
	},
	{
		rule: "an outage gets a second attempt before anything is parked", in: "deliver/core", fn: "Service.evidence",
		find: "if !i.beside && !i.second {", put: "if false {",
		test: "TestAnOutageParksNothing",
	},
	{
		rule: "attempts during an outage do not count", in: "deliver/core", fn: "Service.retryFailed",
		find: "i.Attempts--", put: "_ = i",
		test: "TestAnOutageCountsNoAttempt",
	},
	{
		rule: "an attempt at a change alone counts", in: "deliver/core", fn: "Service.retryFailed",
		find: "(!alone ||", put: "(true ||",
		test: "TestALoneChangeIsGivenUp",
	},
	{
		rule: "the next probe is of another entity", in: "deliver/core", fn: "Service.probe",
		find: "slices.Index(candidates, s.probed) + 1", put: "0",
		test: "TestProbesTakeTurns",
	},
	{
		rule: "a newer change inherits the attempts of its entity", in: "deliver/core", fn: "Service.meetRows",
		find: "max(i.Attempts, r.Attempts)", put: "0",
		test: "TestI13OneEntityFailsForever",
	},
	{
		rule: "a change of a log sink does not overtake the rows of its entity", in: "deliver/core", fn: "Service.fresh",
		find: "case s.cfg.Log && (blocked[i.Entity] || len(s.rows[i.Entity]) > 0):", put: "case false:",
		test: "TestNothingIsLost",
	},
	{
		rule: "rows are bounded", in: "deliver/core", fn: "Service.room",
		find: "s.count < s.cfg.Rows", put: "true",
		test: "TestNothingIsLost",
	},
	{
		rule: "a retry is claimed before it is made", in: "deliver", fn: "worker.retry",
		find: "if err := w.saved(work, step.Items); err != nil {", put: "if err := work.Err(); err != nil {",
		test: "TestARetryIsClaimedBeforeItIsMade",
	},
	{
		rule: "a revoked partition's slices are the next owner's", in: "deliver", fn: "worker.finish",
		find: "if c.p.gone {", put: "if false {",
		test: "./tests/simulation TestSchedules",
	},
	{
		rule: "one letter stands for a content", in: "deliver", fn: "worker.deadLetter",
		find: "hex.EncodeToString(c.Content)", put: "hex.EncodeToString([]byte(c.Key))",
		test: "TestI9OneLetterForAContent",
	},
	{
		rule: "newest only, when it is tried again", in: "deliver", fn: "worker.dropObsolete",
		find: "if newer <= i.Version {", put: "if newer <= i.Version || true {",
		test: "TestRetryLeavesOutWhatWasOvertaken",
	},
	{
		rule: "newest only, for what may have been in hand before", in: "deliver", fn: "worker.add",
		find: "if v.slice.redelivered && rows[c.Entity].Version > c.Version {", put: "if false {",
		test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "what a take-over published may have been in hand before", in: "deliver", fn: "Stage.readFrames",
		find: " || _1._2(_3._4) != nil", put: "",
		test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "a state sink gets the newest of what is in hand", in: "deliver/core", fn: "Service.Add",
		find: "if h.settled ||", put: "if true || h.settled ||",
		test: "./deliver TestAFrameIsCoalescedAsAWhole",
	},
	{
		rule: "the token of the row of a partition", in: "deliver", fn: "saver.save",
		find: "if !_1[_2] {\n\t\t\tif !_3._4 {", put: "if !_1[_2] {\n\t\t\tif false {",
		test: "TestASwapThatFailsEndsTheOwner",
	},
	{
		rule: "a swap of unknown outcome is resolved by the row's token", in: "deliver", fn: "partition.swapped",
		find: "_1._2, _1._3, _1._4 = _5._2, _5._6, _5._7", put: "_1._3, _1._4 = _5._6, _5._7",
		test: "TestASaveWhoseAnswerIsLost",
	},
	{
		rule: "frames above the watermark do not count", in: "deliver", fn: "Stage.readFrames",
		find: "_1._2 = _3._4(_5._6, _1._7, _1._8, _1._9)", put: "_1._2 = true || _3._4(_5._6, _1._7, _1._8, _1._9)",
		test: "TestAFrameOfALostFutureIsPassedOver",
	},
	{
		rule: "the watermark is read after the frame", in: "deliver", fn: "looks.look",
		find: "_1._2 > _3", put: "_1._2 >= _3",
		test: "TestALookBeginsAfterItsCaller",
	},
	{
		rule: "an old process takes no newer frame", in: "deliver", fn: "Stage.readFrames",
		find: "} else if revision := s.revision.Load(); f.Revision > revision {", put: "} else if revision := s.revision.Load(); revision < 0 {",
		test: "TestAFrameOfANewerRevisionIsNotDelivered",
	},
	{
		rule: "the repair looks at the outbox", in: "deliver", fn: "Stage.readOutbox",
		find: "if _1._2(_3) != _4 {\n\t\t\tcontinue", put: "if true {\n\t\t\tcontinue",
		test: "TestWhatIsNotPublishedYetIsTakenFromTheOutbox",
	},
	{
		rule: "the repair reads the log to its end first", in: "deliver", fn: "Stage.bridge",
		find: "if !_1 {\n\t\t_2._3(_4.Prev", put: "if true {\n\t\t_2._3(_4.Prev",
		test: "TestALaterFrameThatGoesOn",
	},
	{
		rule: "the position passes lost changes with a need", in: "deliver", fn: "follower.passLost",
		find: "_1.repair.Lose(_2, _3)", put: "_ = _2",
		test: "TestWhatIsGoneFromTheLogIsDecidedAgain",
	},
	{
		rule: "the need is saved with the position", in: "deliver", fn: "cursor.saved",
		find: "Repair: _1.repair.Encode()", put: "Repair: \"\"",
		test: "TestARepairSurvivesItsProcess",
	},
	{
		rule: "a need moves when its requests are durable", in: "deliver", fn: "pageRequests.answered",
		find: "_1._2[_3] == 0 && !_1._4[_3]", put: "_1._2[_3] == 0",
		test: "TestARepairSurvivesItsProcess",
	},
	{
		rule: "a need that joined a walk in the middle goes round", in: "deliver/core", fn: "Repair.Advance",
		find: "_1.start != \"\":", put: "false:",
		test: "TestARepairVisitsEveryEntityOnce",
	},
	{
		rule: "a page that was read before more was lost does not count", in: "deliver/core", fn: "Repair.Covers",
		find: "_1.joined && ", put: "",
		test: "TestWhatIsLostIsKeptInRanges",
	},
	{
		rule: "a blocked inbox partition leaves the walk", in: "deliver", fn: "Stage.joinWalk",
		find: "_1._2 > 0 || ", put: "",
		test: "TestABlockedInboxPartitionHoldsUpItsOwnRepairAlone",
	},
	{
		rule: "the log's end is compared with the last to", in: "deliver", fn: "Stage.checkEnds",
		find: "_1._2 || _1._3._4 >= _5 {", put: "true {",
		test: "TestALogThatEndsTooEarly",
	},
	{
		rule: "who catches up before the tail passes lost changes is repaired", in: "deliver", fn: "follower.affected",
		find: ", _1.live\n", put: ", _1.live && _1.w.opt.Number == 0\n",
		test: "TestWhoCatchesUpBeforeTheTailPassesLostChangesIsRepaired",
	},
	{
		rule: "who is behind skips nothing to a later copy", in: "deliver", fn: "Stage.offerBehind",
		find: "_1 != _2 && _1._3._4 != _5._6", put: "_1._3._4 > _5._6 && _1 != _2",
		test: "TestWhoIsBehindSkipsNothingToALaterCopy",
	},
	{
		rule: "a part counts behind the first part of its own cut", in: "deliver", fn: "feed.judge",
		find: " || _1._2 != _3._4):", put: "):",
		test: "TestPartsOfTwoCuts",
	},
	{
		rule: "the same first part begins no position again", in: "deliver", fn: "feed.judge",
		find: "_1._2 == _3._4 && _1._5 == _3._6:", put: "_1._2 == _3._4 && _1._5 == _3._6 && false:",
		test: "TestAPositionIsNotBegunAgainWithTheSameFirstPart",
	},
	{
		rule: "what lies before a frame that only the outbox has is repaired", in: "deliver", fn: "feed.before",
		find: "return _1.Prev, nil", put: "return 0, nil",
		test: "TestAnOutboxBehindAGap",
	},
	{
		rule: "who is behind joins where it is itself", in: "deliver", fn: "feed.reaches",
		find: "return _1._2 == 0 && _1._3 >= _4._5()", put: "return _1._2 == 0 && _1._3 >= _4._5() || true",
		test: "TestAServiceWhoseSinkIsAwayFallsBehind",
	},
	{
		rule: "who is behind does not join in the middle of a position", in: "deliver", fn: "feed.border",
		find: "return _1.to\n", put: "return _1.fed + 1\n",
		test: "TestWhoIsBehindJoinsBetweenPositions",
	},
	{
		rule: "who is behind follows to where it may join", in: "deliver", fn: "Stage.restartFeed",
		find: "_1 := _2._3._4()", put: "_1 := _2._3.fed",
		test: "TestEveryServiceIsAwayInsideAPosition",
	},
	{
		rule: "what left the outbox is looked for in the log", in: "deliver", fn: "Stage.bridgeEnd",
		find: "if _1 != _2 || _3 != nil {", put: "if _1 < 0 || _3 != nil {",
		test: "TestABridgeAtTheEndLooksWhereThatIs",
	},
	{
		rule: "who falls behind a tail that it was ahead of waits for no part of a position that it has", in: "deliver", fn: "feed.reach",
		find: "if _1._2 = max(_1._2, _2); _1._3 <= _1._2 {", put: "if _1._2 = max(_1._2, _2); _1.part < 0 {",
		test: "TestWhoFallsBehindIsAtItsFarthest",
	},
	{
		rule: "who catches up goes on inside a position that was cut into parts", in: "deliver", fn: "Stage.catchUp",
		find: "_1._2(_3, _4._5, _6._7)", put: "_1._2(_3, _4._5, _6.offset())",
		test: "./tests/simulation TestSchedules",
	},
	{
		rule: "positions outlive the configuration without their service", in: "deliver", fn: "newPartition",
		find: "_1.absent = append(_1.absent, _2)", put: "_ = _2",
		test: "TestAServiceThatComesBack",
	},
	{
		rule: "a take-over that fails waits as a write does", in: "deliver", fn: "worker.until",
		find: "if !_1._2(_3, _4, _5._6()) {", put: "if !_4.Await(_3, _5._6()) {",
		test: "TestAFailedResumeIsProbedAndSuspended",
	},
	{
		rule: "a first mark is saved before the first write", in: "deliver", fn: "worker.resume",
		find: "return _1._2._3._4(_5, _6)", put: "return nil",
		test: "TestASuccessorFindsWhatWasWritten",
	},
	{
		rule: "a mark is saved with a position above all that was written", in: "deliver", fn: "worker.keepMark",
		find: "_1._2()._3 > _4 {", put: "true || _1._2()._3 > _4 {",
		test: "TestAMarkIsNotAheadOfItsPosition",
	},
	{
		rule: "what waits is apart from its frame", in: "deliver", fn: "Stage.enqueue",
		find: "if len(_1._2._3) > 0 && _4._5 > 2*_4._6._7 {", put: "if false {",
		test: "TestI7WhatWaitsIsApartFromItsFrame",
	},
	{
		rule: "what falls behind is released", in: "deliver", fn: "Stage.fallBehind",
		find: "clear(_1._2)", put: "_ = _1._2",
		test: "TestI7WhatFallsBehindIsReleased",
	},
	{
		rule: "what a dead sink has in hand does not fill the room", in: "deliver", fn: "Stage.roomFor",
		find: "if _1._2 <= _3 ||", put: "if _1._2 == 0*_3 ||",
		test: "TestASuspendedServiceDoesNotHoldUpALargeChange",
	},
	{
		rule: "a log sink is owed older versions, too", in: "deliver/core", fn: "Service.Add",
		find: "(i.Resent || h.Version != i.Version)", put: "i.Resent",
		test: "./deliver TestALogSinkGetsAnOlderChangeOfAnotherPartition",
	},
	{
		rule: "the tail begins at the lowest live position", in: "deliver", fn: "newPartition",
		find: "if c.live && c.floor < p.feed.fed {", put: "if false {",
		test: "TestTheTailBeginsAtTheLowestLivePosition",
	},
	{
		rule: "catch-up serves the lowest first", in: "deliver", fn: "Stage.lowest",
		find: "c.feed.offset() < low.feed.offset()", put: "c.feed.offset() > low.feed.offset()",
		test: "TestCatchUpServesTheLowestFirst",
	},
	{
		rule: "the position of a half-done part", in: "deliver", fn: "worker.finish",
		find: "sl.at = max(sl.frame.From, sl.below)", put: "_ = sl",
		test: "TestThePositionOfAHalfDonePart",
	},
	{
		rule: "only the owner offers a letter", in: "deliver", fn: "Stage.owns",
		find: "return p != nil && !p.gone", put: "return p == nil || !p.gone",
		test: "TestOnlyTheOwnerOffersALetterAndOnlyToASinkThatWorks",
	},
	{
		rule: "a failing sink is offered no letter", in: "deliver", fn: "Stage.takers",
		find: "(state == StateRunning || state == StateRetrying && !w.busy)", put: "(state == StateRunning || true)",
		test: "TestOnlyTheOwnerOffersALetterAndOnlyToASinkThatWorks",
	},
}
