package main

// decideMutants are of the owner of a partition, and of its decisions.
var decideMutants = []mutant{
	{
		rule: "a fenced owner waits before it takes over again", in: "decide", fn: "worker.markStale",
		find: "if _1._2 = _3; _4._5(_3) == _4._6 {", put: "if _1._2 = _3; false {",
		test: "TestAFencedOwnerWaitsBeforeItTakesOver",
	},
	{
		rule: "it is not taken over before that", in: "decide", fn: "ownership.retakeDue",
		find: "return _1._2 != nil && !_3._4().Before(_1._5)", put: "return _1._2 != nil",
		test: "TestNothingOvertakesWhatWasLeftOut",
	},
	{
		rule: "nothing of it is decided meanwhile", in: "decide", fn: "worker.filterOwned",
		find: "if _1._2 != nil {\n\t\t\t_1._3 = _4._5 + 1", put: "if false {\n\t\t\t_1._3 = _4._5 + 1",
		test: "TestNothingOvertakesWhatWasLeftOut",
	},
	{
		rule: "nothing overtakes what was left out", in: "decide", fn: "worker.filterOwned",
		find: "if _1._2 > _1._3 && _4._5 >= _1._2 {", put: "if _1._2 < 0 {",
		test: "TestNothingOvertakesWhatWasLeftOut",
	},
	{
		rule: "nor behind a takeover", in: "decide", fn: "worker.retake",
		find: "_1._2, _1._3 = _4._2, _4._3", put: "_1._2 = _4._2",
		test: "TestNothingOvertakesWhatWasLeftOut",
	},
	{
		rule: "a frame that could not be decided is decided later", in: "decide", fn: "worker.handle",
		find: "_1._2(errLater)", put: "_ = errLater",
		test: "TestAFrameWaitsForItsPartition",
	},
	{
		rule: "a store that went back is read again", in: "decide", fn: "worker.retake",
		find: "if _1._2 < _3._2 {", put: "if false {",
		test: "TestAStoreThatWentBackEndsTheSubscription",
	},
	{
		rule: "an idle owner compares its watermarks", in: "decide", fn: "worker.idle",
		find: "if _1._2() {", put: "if false {",
		test: "TestAnIdleOwnerIsFenced",
	},
	{
		rule: "so does one that is never idle", in: "decide", fn: "worker.handle",
		find: "if _1 == nil && _2._3() {", put: "if false {",
		test: "TestAQuietPartitionBesideABusyOne",
	},
	{
		rule: "what somebody else has is taken over again", in: "decide", fn: "worker.compare",
		find: "_1._2(_3._4._5, _6)", put: "_ = _3",
		test: "TestAnIdleOwnerIsFenced",
	},
	{
		rule: "nothing of another topic is decided", in: "decide", fn: "Decider.Handle",
		find: "if _1._2 != _3._4._5._2 {", put: "if false {",
		test: "TestAnotherInboxIsNotDecided",
	},
	{
		rule: "nothing of a partition that was added is decided", in: "decide", fn: "Decider.Assigned",
		find: "_1 > 0 && _2 >= _1 {", put: "_1 > 0 && _2 > _1 {",
		test: "TestAnotherInboxIsNotDecided",
	},
	{
		rule: "a takeover remembers the last frame's to", in: "decide", fn: "worker.takeOver",
		find: "_1: _2._3, _4: _2._5, _6: _7(_2._8)}", put: "_1: _2._3, _6: _7(_2._8)}",
		test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "frames are handed over after their commit", in: "decide", fn: "worker.transact",
		find: "_1._2._3 = _4._5._6(_7, _1._8, _9, _10, _4._11._12._13)", put: "_1._2._3 = _4._5._6(_7, _1._8, _9, _10, _4._11._12._13)\n\t\tfor i := range _1._2._3 {\n\t\t\t_4._11._12.HandOver(&_1._2._3[i])\n\t\t}",
		test: "TestFramesAreHandedOverAfterTheirCommit",
	},
	{
		rule: "frames of a revoked partition are not handed over", in: "decide", fn: "worker.transact",
		find: "_1._2._3._4 != nil && _1._5[_6._7._8] == _9 {", put: "_1._2._3._4 != nil {",
		test: "TestFramesOfARevokedPartitionAreNotHandedOver",
	},
	{
		rule: "after a commit of unknown outcome the log has an end that was not handed over", in: "decide", fn: "worker.retake",
		find: "_1._2._3._4(_5, _6._7)", put: "_ = _6",
		test: "TestFramesOfAnUnknownOutcomeAreNotHandedOver",
	},
	{
		rule: "partitions that are no more are taken over, too", in: "decide", fn: "worker.assigned",
		find: "_1.Concat(_2, _3)", put: "_2",
		test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "records of an earlier assignment are left out", in: "decide", fn: "worker.filterOwned",
		find: "_1._2 <= _3._4 || ", put: "",
		test: "TestRecordsOfAnEarlierAssignmentAreLeftOut",
	},
	{
		rule: "what was decided already is left out", in: "decide", fn: "worker.filterOwned",
		find: " || _1._2 < _3._4 {", put: " {",
		test: "TestRecordsOfAnEarlierAssignmentAreLeftOut",
	},
	{
		rule: "bisection decides its second half", in: "decide", fn: "worker.halves",
		find: "return _1._2(_3, _4[_5:])", put: "return nil",
		test: "TestABatchIsCutWhereItsOutcomeIsTooLarge",
	},
	{
		rule: "a batch whose outcome is too large is cut", in: "decide", fn: "verdict.full",
		find: "_1.room < 0", put: "_1.room < -1<<62",
		test: "TestABatchIsCutWhereItsOutcomeIsTooLarge",
	},
	{
		rule: "frames link to the one before in their partition", in: "decide", fn: "frameWriter.pack",
		find: "Prev: _2[_3._4],", put: "Prev: change.NewVersion(_3._4.Generation, _3.From),",
		test: "TestFramesAreCut",
	},
	{
		rule: "frames of one decision link to one another", in: "decide", fn: "frameWriter.pack",
		find: "_1, _2._3, _2._4 = _1[_5:], _2._6, _2._6", put: "_1, _2._3 = _1[_5:], _2._6",
		test: "TestFramesAreCut",
	},
	{
		rule: "frames are cut between offsets", in: "decide", fn: "frameWriter.fitting",
		find: "_1, _2 = _3._4(), _5", put: "_1, _2 = _3._4(), _5+1",
		test: "TestFramesAreCut",
	},
	{
		rule: "fence before noise", in: "decide", fn: "evaluation.event",
		find: "_1._2._3(_4, _5._7, _5._8)\n\t\t_1._9(_5, _10)", put: "_1._9(_5, _10)",
		test: "TestI5NoiseIsRememberedByTheFence",
	},
	{
		rule: "the fence does not know an event that died", in: "decide", fn: "evaluation.event",
		find: "_1._2(_3._4, previous)", put: `_1._2(_3._4, previous); _1.fence.note(_3, r.version, r.at); _1.dirty = true`,
		test: "TestPatchesThatDidNotMergeAreReplayedInTheirOrder",
	},
	{
		rule: "a repeated position is stale", in: "decide", fn: "fence.check",
		find: "_1.compare(_2) <= 0 {", put: "_1.compare(_2) < -1 {",
		test: "TestI5PositionAndSequence",
	},
	{
		rule: "an older sequence is stale", in: "decide", fn: "fence.check",
		find: "case _1 < 0:", put: "case _1 < -1:",
		test: "TestI5PositionAndSequence",
	},
	{
		rule: "an event id covers its content", in: "change", fn: "EventMark",
		find: "_1._2(_3)", put: "_ = _3",
		test: "TestEventMark",
	},
	{
		rule: "a takeover remembers who is heard", in: "decide", fn: "worker.takeOver",
		find: "_1: _2._3, _4: _2._5, _6: _7(_2._8)}", put: "_1: _2._3, _4: _2._5, _6: _7(nil)}",
		test: "TestOneSessionOfALogIsHeard",
	},
	{
		rule: "a floor is never lowered", in: "decide", fn: "hearing.raise",
		find: "if _1._2 > _3._2 {", put: "if true {",
		test: "TestOneSessionOfALogIsHeard",
	},
	{
		rule: "an event of another session than the floor's is stale", in: "decide", fn: "hearing.check",
		find: "if _1._2 != _3._2 {", put: "if false {",
		test: "TestOneSessionOfALogIsHeard",
	},
	{
		rule: "a letter of an epoch that ended is obsolete", in: "decide", fn: "hearing.check",
		find: "if _1(_2._3) < _1(_4._3) {", put: "if false {",
		test: "TestALetterOfAnEarlierEpochIsObsolete",
	},
	{
		rule: "an event with all columns repairs the document", in: "decide", fn: "sourceFence.repair",
		find: "_1._2 == nil || len(_3._4) > 0", put: "_1._2 == nil",
		test: "TestARefusedEventLeavesItsPlace",
	},
	{
		rule: "a replay moves no position back", in: "decide", fn: "fence.note",
		find: "_1 = _2\n", put: "_, _ = _1, _2\n",
		test: "TestReplayedEventMovesNoPositionBack",
	},
	{
		rule: "of two replayed letters the one that died later counts", in: "decide", fn: "sourceFence.checkReplay",
		find: "if _1._2._3 < _4._3 {", put: "if false {",
		test: "TestReplayedEventsAreFencedByWhatCameSince",
	},
	{
		rule: "last seen: equal content is held back", in: "decide", fn: "evaluation.compareAndSend",
		find: "if _1 && !_2(_3._4, &_5) {", put: "if false && _1 {",
		test: "TestI9RefusedContentIsHeldBackWhenEvaluated",
	},
	{
		rule: "an entity that returns entered when it first did", in: "decide", fn: "evaluation.compareAndSend",
		find: "if !row.Found {\n\t\trow.Entered", put: "if ch.Effect == change.Enters {\n\t\trow.Entered",
		test: "TestAChangeSaysWhenItsEntityEntered",
	},
	{
		rule: "last seen: the dam remembers what was sent", in: "decide", fn: "evaluation.compareAndSend",
		find: "_1._2, _1._3, _1._4 = _5._6, ", put: "_1._3, _1._4 = ",
		test: "TestRedecide",
	},
	{
		rule: "a lost change that is too large to be made again leaves nothing known", in: "decide", fn: "evaluation.compareAndSend",
		find: "_1._2(_3._4, []int{_5})", put: "_ = _1._2",
		test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "a lost change whose projection fails leaves nothing known", in: "decide", fn: "evaluation.offer",
		find: "\t\t\t_1._2(_3._4, _5)\n\t\t\treturn false, nil\n", put: "\t\t\treturn false, nil\n",
		test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "only the change that is lost leaves nothing known", in: "decide", fn: "amended",
		find: "_1._2 != nil && _1._3 == _4._3:", put: "_1._2 != nil:",
		test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "an oversized change leaves the dam state", in: "decide", fn: "evaluation.compareAndSend",
		find: "l._1 = _2._3\n", put: "l._1 = _2._3\n\t\trow.Content, row.Version = c.content, _2.Version\n\t\tev.states.Set(row)\n",
		test: "TestOversizedChange",
	},
	{
		rule: "the newest of stale records in a row is kept", in: "decide", fn: "history.stale",
		find: "return false\n", put: "return false\n\t\t}\n\t\tif true {\n\t\t\treturn false\n",
		test: "TestOfStaleRecordsInARowTheFirstAndTheNewestAreKept",
	},
	{
		rule: "a letter of a failed evaluation ends with one that succeeds", in: "decide", fn: "evaluation.suppress",
		find: "ev.succeedFor(_1, _2)\n", put: "_ = _1\n",
		test: "TestALetterOfAFailedEvaluationEndsWithASuccess",
	},
	{
		rule: "a failed evaluation without a dam state is repeated when all are", in: "decide", fn: "evaluation.touchAll",
		find: "range ev.failed {", put: "range ev.failed[:0] {",
		test: "TestALetterOfAFailedEvaluationEndsWithASuccess",
	},
	{
		rule: "nothing is retracted that was never sent", in: "decide", fn: "evaluation.compareAndSend",
		find: "if !_1._2 && _3._4 == nil {", put: "if false {",
		test: "TestOnlyWhatACustomerHasIsHeldBack",
	},
	{
		rule: "refused only if the state still has that version", in: "decide", fn: "amended",
		find: "_1._2 == _3._2 && _1._4 != nil", put: "_1._4 != nil",
		test: "TestI9RefusedContentIsHeldBack",
	},
	{
		rule: "a state that was reset stays unknown", in: "decide", fn: "amended",
		find: "_1._2 == _3._2 && _1._4 != nil", put: "_1._2 == _3._2",
		test: "TestI9WhatLetsRefusedContentPass",
	},
	{
		rule: "any other content passes a refusal", in: "decide", fn: "evaluation.compareAndSend",
		find: "max(_1._2, _3._2), false\n", put: "max(_1._2, _3._2), _1.Refused\n",
		test: "TestI9RefusedContentIsHeldBack",
	},
	{
		rule: "a letter that something newer overtook is obsolete", in: "decide", fn: "evaluation.superseded",
		find: "_1._2 && _1._3 > _4._3, _5._6", put: "false, _5._6",
		test: "TestI9AnOldLetterIsObsolete",
	},
	{
		rule: "a resent change that is the newest is under way, not refused", in: "decide", fn: "evaluation.resend",
		find: "_1._2 = false // it is under way again\n", put: "_ = _1\n",
		test: "TestI9AResentChangeIsUnderWay",
	},
	{
		rule: "what was sent again keeps a tombstone", in: "decide", fn: "evaluation.newest",
		find: "_1 = max(_1, _2._3)", put: "_ = _2",
		test: "TestAPurgeWaitsForWhatWasSentAgain",
	},
	{
		rule: "after a reset the next event is evaluated", in: "decide", fn: "evaluation.control",
		find: "_1._2, _1._3 = false, true", put: "_1._3 = true",
		test: "TestReset",
	},
	{
		rule: "an entity that appears or goes is for every service", in: "decide", fn: "evaluation.event",
		find: "_1._2 != _3 || ", put: "_1._2 != _3 && false || ",
		test: "TestRetraction",
	},
	{
		rule: "a claim of an earlier batch has no second effect", in: "decide", fn: "claims.of",
		find: "_1 || _2 {", put: "_2 && !_1 || _2 {",
		test: "TestARepeatedClaimIsStale",
	},
	{
		rule: "a claim has one effect in a batch", in: "decide", fn: "claims.of",
		find: "_1._2[_3._4] = struct{}{}", put: "_ = _1._2",
		test: "TestAClaimHasOneEffect",
	},
	{
		rule: "a key with other content is a conflict", in: "decide", fn: "claims.of",
		find: "_1._2() < _3._4 && _5._6 == _3._7._6:", put: "_1._2() < _3._4:",
		test: "TestAKeyHasOneEffect",
	},
	{
		rule: "an assignment that ends halfway owns nothing", in: "decide", fn: "Decider.Assigned",
		find: "_1._2(_3, _4) // nobody", put: "_ = _4 // nobody",
		test: "TestAnAssignmentThatEndsHalfwayOwnsNothing",
	},
	{
		rule: "an idle owner learns that another configuration is active", in: "decide", fn: "worker.compare",
		find: "_1._2._3(_4) // without events", put: "_ = _4 // without events",
		test: "TestAnIdleOwnerOfAnOlderRevisionEnds",
	},
	{
		rule: "a cached entity is current only under the plan in force", in: "decide", fn: "newEvaluation",
		find: "_1.Found && _2.plan.Current(_1)", put: "_1.Found",
		test: "TestAnOwnerAdoptsTheNextPlan",
	},
	{
		rule: "an owner continues under the plan that replaced its own", in: "decide", fn: "Decider.replaced",
		find: "_1 := _2._3.Next(_4, _5)", put: "var _1 *Plan",
		test: "TestAnOwnerAdoptsTheNextPlan",
	},
}
