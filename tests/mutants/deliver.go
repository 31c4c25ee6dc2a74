package main

// deliverMutants are of the way from the changes log to the sinks.
var deliverMutants = []mutant{
	{
		rule: "what is below the position is skipped, also inside a frame that overlaps", in: "deliver", fn: "loop.decode",
		find: "if _1._2() < _3._4 {", put: "if false {",
		test: "TestAFrameThatOverlapsIsTakenInPart",
	},
	{
		rule: "what the target has is not written again", in: "deliver", fn: "attempt.write",
		find: "a.leaveKnown()", put: "",
		test: "TestWhatTheTargetHasIsNotWritten",
	},
	{
		rule: "only changes from after the takeover are known (NO_END)", in: "deliver", fn: "attempt.remember",
		find: "&& c.Version >= p.NewFrom", put: "",
		test: "TestWhatAFormerOwnerMayWriteIsNotKnown",
	},
	{
		rule: "a reload counts as a takeover", in: "deliver", fn: "Stage.join",
		find: "p.prove()", put: "",
		test: "TestWhatAFormerOwnerMayWriteIsNotKnown",
	},
	{
		rule: "an attempt makes the content unknown until it succeeds (KEEP_FAILED)", in: "deliver", fn: "attempt.try",
		find: "a.known.forget(i.Entity)", put: "",
		test: "TestWhatAnAttemptMayHaveWrittenIsNotKnown",
	},
	{
		rule: "so does a takeover (KEEP_OWNER)", in: "deliver", fn: "known.has",
		find: "d.owner == i.Assignment &&", put: "",
		test: "TestATakeoverForgets",
	},
	{
		rule: "a request's change is written", in: "deliver", fn: "loop.add",
		find: "l.known.forget(c.Entity)", put: "",
		test: "TestARequestIsWritten",
	},
	{
		rule: "a change of unknown content is written", in: "decide", fn: "evaluation.compareAndSend",
		find: "r.Control != nil || row.Found && row.Content == nil", put: "r.Control != nil",
		test: "TestWhatIsForced",
	},
	{
		rule: "a requested change is written", in: "decide", fn: "evaluation.compareAndSend",
		find: "r.Control != nil || row.Found && row.Content == nil", put: "row.Found && row.Content == nil",
		test: "TestWhatIsForced",
	},
	{
		rule: "effect, then position", in: "deliver", fn: "delivery.settled",
		find: "return _1._2\n", put: "return true\n",
		test: "TestStopWhileTheSinkIsAway",
	},
	{
		rule: "what took effect is saved before the next write", in: "deliver", fn: "attempt.try",
		find: "if !_1._2._3 && slices.Contains(_1._4, nil) {", put: "if false && slices.Contains(_1._4, nil) {",
		test: "TestThePositionMovesWithinAFrame",
	},
	{
		rule: "dead letter with the position", in: "deliver", fn: "worker.applyEffect",
		find: "p.Edit(w.letters.key(e.Item), core.RowEdit{Letter: v.letter, Parked: e.Item.Row})", put: "_ = p",
		test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "the row remembers the refused content", in: "deliver", fn: "deadLetters.refuse",
		find: "Version: i.Version,", put: "",
		test: "TestRefusedChangeIsFoundByBisection",
	},
	{
		rule: "a write that failed as a whole is halved", in: "deliver/core", fn: "batch.halve",
		find: "b.limit = max(1, len(step.Items)/2)", put: "b.limit = len(step.Items)",
		test: "TestAWriteThatFailsAsAWholeIsHalved",
	},
	{
		rule: "a write that failed as a whole parks nothing (PARK_WHOLE)", in: "deliver/core", fn: "Service.answered",
		find: "case together:", put: "case false:",
		test: "TestAWriteThatFailsAsAWholeIsHalved",
	},
	{
		rule: "without a connection nothing is parked (PARK_DOWN)", in: "deliver/core", fn: "Service.Done",
		find: "case e.Unreachable:", put: "case false:",
		test: "TestAnUnreachableTargetParksNothing",
	},
	{
		rule: "time alone gives nothing up (BY_TIME)", in: "deliver/core", fn: "Service.failedAlone",
		find: "old >= s.cfg.For && (i.failsAlone || alone)", put: "old >= s.cfg.For",
		test: "TestTimeAloneGivesNothingUp",
	},
	{
		rule: "a very old row ends in any case (NO_END)", in: "deliver/core", fn: "Service.failedAlone",
		find: " || old >= giveUpAnyway*s.cfg.For", put: "",
		test: "TestTimeAloneGivesNothingUp",
	},
	{
		rule: "an attempt at a change alone counts", in: "deliver/core", fn: "Service.failedAlone",
		find: "(i.failsAlone || alone)", put: "i.failsAlone",
		test: "TestAnOldRowIsGivenUp",
	},
	{
		rule: "a takeover is no evidence", in: "deliver/core", fn: "Service.Restore",
		find: "s.lastAttempt = s.attempt + 1", put: "s.lastAttempt = s.attempt",
		test: "TestATakeoverIsNoEvidence",
	},
	{
		rule: "a full queue is given up only if the entity fails alone (BY_QUEUE)", in: "deliver/core", fn: "Service.queue",
		find: "&& head.failsAlone", put: "",
		test: "TestAFullQueue",
	},
	{
		rule: "that no other was tried is no evidence for a queue (QUEUE_ALONE)", in: "deliver/core", fn: "Service.failedAlone",
		find: "i.failsAlone = s.lastSuccess > i.lastAttempt", put: "i.failsAlone = alone || s.lastSuccess > i.lastAttempt",
		test: "TestAFullQueue",
	},
	{
		rule: "held changes take turns (PROBE_HEAD)", in: "deliver/core", fn: "Hand.held",
		find: "slices.Index(all, h.lastHeld) + 1", put: "0",
		test: "TestAFullServiceTriesAll",
	},
	{
		rule: "a full service tries what is in hand (STOP_FULL)", in: "deliver/core", fn: "Hand.held",
		find: "if h.cfg.Holds {", put: "if h.cfg.Holds || parked.full() {",
		test: "TestAFullServiceTriesAll",
	},
	{
		rule: "rows and held changes take turns (ROWS_LAST)", in: "deliver/core", fn: "Service.Next",
		find: "if len(due) > 0 && s.retryNext {", put: "if len(due) > 0 && false {",
		test: "TestAFullServiceTriesAll",
	},
	{
		rule: "two failing entities brake the service", in: "deliver/core", fn: "brake.braked",
		find: "len(b.failing) > 1", put: "false",
		test: "TestADayOf503CostsTheCap",
	},
	{
		rule: "a braked service waits as asked", in: "deliver/core", fn: "brake.until",
		find: "return later(at, ", put: "return later(time.Time{}, ",
		test: "TestABrakedServiceWaitsAsAsked",
	},
	{
		rule: "rows are due after the first success", in: "deliver/core", fn: "Service.judge",
		find: "if b.braked() {", put: "if false {",
		test: "TestRowsAreDueAfterASuccess",
	},
	{
		rule: "a newer change inherits the time of its entity's first failure", in: "deliver/core", fn: "Item.inherit",
		find: "i.Since = earliest(i.Since, h.Since)", put: "_ = h",
		test: "TestI13OneEntityFailsForever",
	},
	{
		rule: "a change of a log sink does not overtake the rows of its entity", in: "deliver/core", fn: "Hand.fresh",
		find: "case h.cfg.Log && (blocked[i.Entity] || len(parked.of[i.Entity]) > 0):", put: "case false:",
		test: "TestNothingIsLost",
	},
	{
		rule: "rows are bounded (NO_CAP)", in: "deliver/core", fn: "rows.room",
		find: "r.count < r.most", put: "true",
		test: "TestNothingIsLost",
	},
	{
		rule: "a retry is claimed before it is made", in: "deliver", fn: "attempt.claim",
		find: "if err := a.saved(work, a.step.Items); err != nil {", put: "if err := work.Err(); err != nil {",
		test: "TestARetryIsClaimedBeforeItIsMade",
	},
	{
		rule: "a revoked partition's slices are the next owner's", in: "deliver", fn: "worker.finish",
		find: "|| sl.Lane.Partition.Revoked()", put: "",
		test: "TestTheNewestGoesAwayWithItsPartition",
	},
	{
		rule: "one letter stands for a content", in: "deliver", fn: "deadLetters.deadLetter",
		find: "hex.EncodeToString(c.Content)", put: "hex.EncodeToString([]byte(c.Key))",
		test: "TestI9OneLetterForAContent",
	},
	{
		rule: "newest only, when it is tried again", in: "deliver", fn: "attempt.dropObsolete",
		find: "case newer <= i.Version:", put: "case true:",
		test: "TestRetryLeavesOutWhatWasOvertaken",
	},
	{
		rule: "newest only, for changes that may have been in hand before", in: "deliver", fn: "loop.add",
		find: "if rows[c.Entity].Version > c.Version && (v.slice.Redelivered || l.obsoleteAfter(v)) {", put: "if false && rows != nil {",
		test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "the guard counts retractions", in: "deliver", fn: "GuardKind",
		find: "case c.Op == change.Retract && c.Effect == change.Leaves,", put: "case c.Op == change.Retract && c.Effect == change.Enters,",
		test: "TestAMassDeletionIsHeld",
	},
	{
		rule: "the guard does not count who came and left within its window", in: "deliver", fn: "attempt.admit",
		find: "Young: c.Young(a.guard.limits.Window)", put: "Young: false",
		test: "TestAHistoryOfShortLivedEntitiesIsNotHeld",
	},
	{
		rule: "the guard does not count what an operator requested", in: "deliver", fn: "GuardKind",
		find: "case c.Planned || c.Resent != 0:", put: "case c.Resent != 0:",
		test: "TestWhatTheGuardDoesNotCount",
	},
	{
		rule: "a held change ends the write", in: "deliver", fn: "attempt.judged",
		find: "cut = min(cut, slices.Index(a.step.Items, i))", put: "_ = cut",
		test: "TestAMassDeletionIsHeld",
	},
	{
		rule: "retries pass the guard", in: "deliver", fn: "attempt.try",
		find: "released, err := a.admit(work, stop)", put: "released, err := a.step.Kind == core.Write, error(nil)\n\tif released {\n\t\treleased, err = a.admit(work, stop)\n\t}",
		test: "TestTheGuardCountsRetries",
	},
	{
		rule: "what was admitted before a pause is counted again", in: "deliver", fn: "attempt.admit",
		find: "if i.Admitted <= a.target.resumes &&", put: "if i.Admitted == 0 &&",
		test: "TestWhatWaitedInAPauseIsJudgedAgain",
	},
	{
		rule: "a discarded change is refused", in: "deliver", fn: "attempt.judged",
		find: "if err := a.letters.refuse(work, stop, \"discarded\", discarded); err != nil {", put: "if err := work.Err(); err != nil {",
		test: "TestADiscardedChangeIsRefused",
	},
	{
		rule: "a pause lasts over a reload", in: "deliver", fn: "Stage.replace",
		find: "added[i].target.condition.paused(p)", put: "_ = p",
		test: "TestAHoldLastsOverAReload",
	},
	{
		rule: "so many entities leave as the limit says", in: "store", fn: "GuardState.Judge",
		find: "counted >= limit", put: "counted > limit",
		test: "./deliver TestAMassDeletionIsHeld",
	},
	{
		rule: "the number of entities moves with the position", in: "deliver/core", fn: "Lane.advance",
		find: "l.entities += l.pending[0].Entities", put: "l.entities += 0",
		test: "./deliver TestTheCountIsExactOverKills",
	},
	{
		rule: "a state sink gets the newest of what is in hand", in: "deliver/core", fn: "Service.Add",
		find: "if h.state == Settled ||", put: "if true || h.state == Settled ||",
		test: "./deliver TestAFrameIsCoalescedAsAWhole",
	},
	{
		rule: "the token of the row of a partition", in: "deliver", fn: "saver.save",
		find: "!done[i] && !p.Revoked()", put: "false",
		test: "TestASwapThatFailsEndsTheOwner",
	},
	{
		rule: "a swap of unknown outcome is resolved by the row's token", in: "deliver/core", fn: "Partition.Swapped",
		find: "p.token, p.saved, p.stored = s.token, s.positions, s.edits", put: "p.saved, p.stored = s.positions, s.edits",
		test: "./deliver TestASaveWhoseAnswerIsLost",
	},
	{
		rule: "a frame is taken if it follows (HAND_BLIND, NO_PREV)", in: "deliver/core", fn: "Partition.HandOut",
		find: "if l.upTo >= f.To || f.Prev > l.upTo {", put: "if l.upTo >= f.To {",
		test: "TestI1NoChangeIsPassed",
	},
	{
		rule: "a frame that a lane has is a repetition", in: "deliver/core", fn: "Partition.HandOut",
		find: "if l.upTo >= f.To || f.Prev > l.upTo {", put: "if f.Prev > l.upTo {",
		test: "TestI1NoChangeIsPassed",
	},
	{
		rule: "what the log has not is lost (GAP_SILENT)", in: "deliver/core", fn: "Lane.lose",
		find: "l.repair.Lose(from, to)", put: "",
		test: "TestI1NoChangeIsPassed",
	},
	{
		rule: "the end of the log shows what is lost (NO_END)", in: "deliver", fn: "partition.look",
		find: "from := tail.LastTo", put: "from := after",
		test: "TestALogThatEndsTooEarly",
	},
	{
		rule: "a former owner hands out nothing that it reads (NO_LOOK)", in: "deliver", fn: "partition.checkOwner",
		find: "case p.Owned(owner):", put: "case true:",
		test: "TestAFormerOwnerHandsOutNothingNew",
	},
	{
		rule: "what comes from the store may have been in hand before (NO_NEWEST)", in: "deliver", fn: "partition.look",
		find: ", Redelivered: true}", put: "}",
		test: "TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash",
	},
	{
		rule: "an owner learns of a frame whose commit had no answer", in: "deliver", fn: "Stage.Ends",
		find: "p.Retaken(to)", put: "_ = to",
		test: "TestAFrameThatWasNotHandedOver",
	},
	{
		rule: "an old process takes no newer frame", in: "deliver", fn: "Stage.Handle",
		find: "f.Revision > revision {", put: "revision < 0 {",
		test: "TestAFrameOfANewerRevisionIsNotDelivered",
	},
	{
		rule: "an attempt that is taken back has no pause", in: "deliver/core", fn: "Service.withdraw",
		find: "i.Next = now.Add(s.brake.backoff(i))", put: "_ = now",
		test: "TestAnAttemptThatIsTakenBack",
	},
	{
		rule: "the position passes lost changes with a need", in: "deliver/core", fn: "Lane.lose",
		find: "l.repair.Lose(from, to)", put: "_ = from",
		test: "TestAGapHoldsUpNoServiceThatHasTheChanges",
	},
	{
		rule: "the need is saved with the position", in: "deliver/core", fn: "Lane.saved",
		find: "Repair: l.repair.Encode()", put: "Repair: \"\"",
		test: "./deliver TestARepairSurvivesItsProcess",
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
		rule: "a blocked inbox partition leaves the walk", in: "deliver/core", fn: "Flow.JoinWalk",
		find: "if p.requesting > 0 {", put: "if false {",
		test: "./deliver TestABlockedInboxPartitionHoldsUpItsOwnRepairAlone",
	},
	{
		rule: "requests wait for a service that is far behind", in: "deliver/core", fn: "Flow.JoinWalk",
		find: "if n.Lane.old(_1[_2.Number].Begins) {", put: "if false {",
		test: "TestRequestsWaitForAServiceThatIsFarBehind",
	},
	{
		rule: "a lap begins when its begin is saved", in: "deliver/core", fn: "refresh.begin",
		find: "case !l.Partition.Stored(r.begun):", put: "case false:",
		test: "TestARefreshSendsEachEntityOnceAPeriod",
	},
	{
		rule: "a lap leaves out what changed since it began", in: "deliver/core", fn: "refresh.begin",
		find: "r.lap.Lose(0, top)", put: "r.lap.Lose(0, 1<<62)",
		test: "TestARefreshSendsEachEntityOnceAPeriod",
	},
	{
		rule: "positions outlive the configuration without their service", in: "deliver/core", fn: "Flow.Assign",
		find: "_1._2 = append(_1._2, at)", put: "_1._2 = nil",
		test: "./deliver TestAServiceThatComesBack",
	},
	{
		rule: "a takeover that fails waits as a write does", in: "deliver", fn: "target.until",
		find: "if !_1._2(_3, _4, _5._6()) {", put: "if !_4.Await(_3, _5._6()) {",
		test: "TestAFailedResumeIsProbedAndPaused",
	},
	{
		rule: "a first mark is saved before the first write", in: "deliver", fn: "recovery.resume",
		find: "return r.saved(_5, _6)", put: "return nil",
		test: "TestASuccessorFindsWhatWasWritten",
	},
	{
		rule: "a mark is saved with a position above all that was written", in: "deliver", fn: "recovery.keepMark",
		find: "c.Position() > above {", put: "true || c.Position() > above {",
		test: "TestAMarkIsNotAheadOfItsPosition",
	},
	{
		rule: "waiting slices are apart from their frame", in: "deliver/core", fn: "Lane.dispatch",
		find: "if (len(q.waiting) > 0 || q.Paced) && q.flow.kept > 2*q.flow.Memory {", put: "if false {",
		test: "./deliver TestI7WhatWaitsIsApartFromItsFrame",
	},
	{
		rule: "dropped slices are released", in: "deliver/core", fn: "Lane.fall",
		find: "clear(l.pending[waiting:])", put: "_ = waiting",
		test: "./deliver TestI7WhatFallsBehindIsReleased",
	},
	{
		rule: "a log sink is owed older versions, too", in: "deliver/core", fn: "Service.Add",
		find: "(i.Resent || h.Version != i.Version)", put: "i.Resent",
		test: "TestALogSinkGetsAnOlderChangeOfAnotherPartition",
	},
	{
		rule: "only the owner offers a letter", in: "deliver", fn: "offers.owns",
		find: "return p != nil && !p.Revoked()", put: "return p == nil || !p.Revoked()",
		test: "TestOnlyTheOwnerOffersALetterAndOnlyToASinkThatWorks",
	},
	{
		rule: "a failing sink is offered no letter", in: "deliver", fn: "offers.takers",
		find: "state == StateRunning || state == StateRetrying && !w.queue.Busy()", put: "(state == StateRunning || true)",
		test: "TestOnlyTheOwnerOffersALetterAndOnlyToASinkThatWorks",
	},
	{
		rule: "a rate writes batches", in: "deliver/core", fn: "Rate.gathers",
		find: "r.every == 0 || changes <= int(r.tokens)", put: "r.every >= 0 || changes <= int(r.tokens)",
		test: "TestARateWritesBatches",
	},
	{
		rule: "a bucket is that of the share", in: "deliver/core", fn: "Rate.Share",
		find: "r.tokens = min(r.tokens, float64(r.burst))", put: "_ = r.burst",
		test: "TestABucketShrinksWithItsShare",
	},
	{
		rule: "a successor counts settle_max from the decision", in: "deliver", fn: "loop.add",
		find: "i.OldestUnsent = c.Time\n", put: "_ = i\n",
		test: "TestASuccessorCountsFromTheDecision",
	},
	{
		rule: "an entity that returns enters", in: "decide", fn: "candidate.effect",
		find: "has := row.Found && !row.Content.IsRetracted()", put: "has := row.Found",
		test: "TestTheEffectOfACandidate",
	},
	{
		rule: "a backlog is as dense as its history", in: "store", fn: "Admission.slot",
		find: "if at.IsZero() ||", put: "if true ||",
		test: "TestABacklogIsNotHeldByItself",
	},
}
