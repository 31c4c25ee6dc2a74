package main

// The owner of a partition, and what it decides.
var decideMutants = []mutant{
	{
		rule: "take over after a failed publish", file: "decide/worker.go",
		old: "o.stale, o.due = err, time.Now().Add(o.pause)", new: "_ = o.due",
		in: "./decide", test: "TestAFailedPublishIsRepeatedFromTheStore",
	},
	{
		rule: "no take-over while publishes are unanswered", file: "decide/worker.go",
		old: "return o.stale != nil && w.unpublished[n] == 0", new: "return o.stale != nil",
		in: "./decide", test: "TestATakeOverWaitsForTheAnswers",
	},
	{
		rule: "nor is anything published by one", file: "decide/worker.go",
		old: "if len(f.Outbox) > 0 && w.unpublished[n] > 0 {", new: "if n < 0 {",
		in: "./decide", test: "TestAnAssignmentWaitsForTheAnswersToo",
	},
	{
		rule: "what a partition of the changes log does not take is bounded", file: "decide/worker.go",
		old: "return o.stale == nil && w.unpublished[n] <", new: "return o.stale == nil && 0 <",
		in: "./decide", test: "TestAPartitionOfTheChangesLogThatTakesNothing",
	},
	{
		rule: "nothing overtakes what was left out", file: "decide/decide.go",
		old: "if o.leftOut > o.next && r.offset >= o.leftOut {", new: "if o.leftOut < 0 {",
		in: "./decide", test: "TestNothingOvertakesWhatWasLeftOut/published",
	},
	{
		rule: "nor behind a take-over", file: "decide/worker.go",
		old: "o.after, o.leftOut = old.after, old.leftOut", new: "o.after = old.after",
		in: "./decide", test: "TestNothingOvertakesWhatWasLeftOut/taken_over_again",
	},
	{
		rule: "a frame that could not be decided is decided later", file: "decide/decide.go",
		old: "f.Fail(errLater)", new: "_ = errLater",
		in: "./decide", test: "TestAFrameWaitsForItsPartition",
	},
	{
		rule: "a store that went back is read again", file: "decide/worker.go",
		old: "if o.next < old.next {", new: "if false {",
		in: "./decide", test: "TestAStoreThatWentBackEndsTheSubscription",
	},
	{
		rule: "an idle owner compares its watermarks", file: "decide/worker.go",
		old: "if (all || len(o.published) > 0) &&", new: "if len(o.published) > 0 &&",
		in: "./decide", test: "TestAnIdleOwnerDeletesWhatWasAcknowledged",
	},
	{
		rule: "so does one that is never idle", file: "decide/decide.go",
		old: "if err == nil && w.ownDue() {", new: "if false {",
		in: "./decide", test: "TestAQuietPartitionBesideABusyOne",
	},
	{
		rule: "what somebody else has is taken over again", file: "decide/worker.go",
		old: "w.markStale(m.Partition.Number, err)", new: "_ = m",
		in: "./decide", test: "TestAQuietPartitionBesideABusyOne",
	},
	{
		rule: "nothing of another topic is decided", file: "decide/decider.go",
		old: "if f.TopicID != d.opt.Inbox.TopicID {", new: "if false {",
		in: "./decide", test: "TestAnotherInboxIsNotDecided",
	},
	{
		rule: "nothing of a partition that was added is decided", file: "decide/decider.go",
		old: "n > 0 && p >= n {", new: "n > 0 && p > n {",
		in: "./decide", test: "TestAnotherInboxIsNotDecided",
	},
	{
		rule: "an outbox row is deleted when its publish is acknowledged", file: "decide/worker.go",
		old: "o.published, o.pause = append(o.published, ids...), 0", new: "_, o.pause = ids, 0",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "an outbox row stays when its publish failed", file: "decide/worker.go",
		old: "if err == nil {\n\t\t\t\to.published", new: "if true {\n\t\t\t\to.published",
		in: "./decide", test: "TestAShutdownKeepsWhatFailed",
	},
	{
		rule: "acknowledged ids are forgotten", file: "decide/worker.go",
		old: "o.published = o.published[n:]", new: "_, _ = o, n",
		in: "./decide", test: "TestAnIdleOwnerDeletesWhatWasAcknowledged",
	},
	{
		rule: "acknowledged ids are forgotten with the decision that deleted them", file: "decide/decide.go",
		old: "o.published, o.next = o.published[deleted[o]:], m.To", new: "o.next = m.To",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "an idle owner deletes what was acknowledged", file: "decide/worker.go",
		old: "d.Published = append(d.Published, o.published...)", new: "_ = o",
		in: "./decide", test: "TestAnIdleOwnerDeletesWhatWasAcknowledged",
	},
	{
		rule: "a take-over publishes what the outbox holds", file: "decide/worker.go",
		old: "w.republish(ctx, found, taken)\n", new: "_ = w.republish\n",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "what a take-over publishes says that it may be a repetition", file: "decide/worker.go",
		old: ", transport.Header{Key: change.RepublishedHeader, Value: []byte(\"1\")})", new: ")",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "a take-over remembers the last frame's to", file: "decide/worker.go",
		old: "next: f.NextOffset, lastTo: f.LastTo}", new: "next: f.NextOffset}",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "outboxes of partitions that are no more are published", file: "decide/worker.go",
		old: "slices.Concat(partitions, orphans)", new: "partitions",
		in: "./decide", test: "TestWhatAnOlderInboxLeftIsPublished",
	},
	{
		rule: "records of an earlier assignment are left out", file: "decide/decide.go",
		old: "r.assignment <= o.after || ", new: "",
		in: "./decide", test: "TestRecordsOfAnEarlierAssignmentAreLeftOut",
	},
	{
		rule: "what was decided already is left out", file: "decide/decide.go",
		old: " || r.offset < o.next {", new: " {",
		in: "./decide", test: "TestRecordsOfAnEarlierAssignmentAreLeftOut",
	},
	{
		rule: "bisection decides its second half", file: "decide/decide.go",
		old: "return w.decide(ctx, batch[half:])", new: "return nil",
		in: "./decide", test: "TestABatchIsCutWhereItsOutcomeIsTooLarge",
	},
	{
		rule: "a batch whose outcome is too large is cut", file: "decide/batch.go",
		old: "return v.room < 0", new: "return false",
		in: "./decide", test: "TestABatchIsCutWhereItsOutcomeIsTooLarge",
	},
	{
		rule: "frames link to the one before in their partition", file: "decide/frames.go",
		old: "Prev: ends[m.Partition],", new: "Prev: change.NewVersion(m.Partition.Generation, m.From),",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "frames of one decision link to one another", file: "decide/frames.go",
		old: "rest, h.From, h.Prev = rest[n:], h.To, h.To", new: "rest, h.From = rest[n:], h.To",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "a cut is known by what is in each part", file: "decide/frames.go",
		old: "[2]int32{int32(i), number(c)}", new: "[2]int32{0 * int32(i), number(c)}",
		in: "./decide", test: "TestACutIsKnownByWhatIsInEachPart",
	},
	{
		rule: "frames are cut between offsets", file: "decide/frames.go",
		old: "of, fit = c.Position(), n", new: "of, fit = c.Position(), n+1",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "the last part of a frame says so", file: "decide/frames.go",
		old: "h.Part, h.Last = i, i == len(parts)-1", new: "h.Part, h.Last = i, i == 0",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "fence before noise", file: "decide/evaluate.go",
		old: "ev.fence.note(e, r.mark, r.version, r.at)\n\t\tev.count(r, outcomeNoise)", new: "ev.count(r, outcomeNoise)",
		in: "./decide", test: "TestI5NoiseIsRememberedByTheFence",
	},
	{
		rule: "the fence does not know an event that died", file: "decide/evaluate.go",
		old: "ev.set(e.Source, previous)", new: `ev.set(e.Source, previous); ev.fence.note(e, "", r.version, r.at); ev.dirty = true`,
		in: "./decide", test: "TestPatchesThatDidNotMergeAreReplayedInTheirOrder",
	},
	{
		rule: "a repeated position is stale", file: "decide/fence.go",
		old: "e.Offset <= p.Offset {", new: "e.Offset < p.Offset-1 {",
		in: "./decide", test: "TestI5PositionAndSequence",
	},
	{
		rule: "an older sequence is stale", file: "decide/fence.go",
		old: "change.CompareSequence(e.Sequence, s.Sequence) < 0", new: "false",
		in: "./decide", test: "TestI5PositionAndSequence",
	},
	{
		rule: "an event id covers its content", file: "decide/fence.go",
		old: "h.Write(content[:])", new: "_ = content",
		in: "./decide", test: "TestReusedEventID",
	},
	{
		rule: "a replay moves no position back", file: "decide/fence.go",
		old: "offset = max(offset, s.Positions[was].Offset)", new: "_ = offset",
		in: "./decide", test: "TestReplayedEventMovesNoPositionBack",
	},
	{
		rule: "of two replayed letters the one that died later counts", file: "decide/fence.go",
		old: "if e.Replay.Died < s.Died {", new: "if false {",
		in: "./decide", test: "TestReplayedEventsAreFencedByWhatCameSince",
	},
	{
		rule: "last seen: equal content is held back", file: "decide/settle.go",
		old: "if equal && !passes(r.Control, &row) {", new: "if false && equal {",
		in: "./decide", test: "TestI9RefusedContentIsHeldBackWhenEvaluated",
	},
	{
		rule: "last seen: the dam remembers what was sent", file: "decide/settle.go",
		old: "row.Content, row.Version, row.Refused = c.content, ", new: "row.Version, row.Refused = ",
		in: "./decide", test: "TestRedecide",
	},
	{
		rule: "a lost change that is too large to be made again leaves nothing known", file: "decide/settle.go",
		old: "ev.unknown(r.Control, []int{service})", new: "_ = ev.unknown",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "a lost change whose projection fails leaves nothing known", file: "decide/settle.go",
		old: "\t\t\tev.unknown(r.Control, services)\n\t\t\treturn false, nil\n", new: "\t\t\treturn false, nil\n",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "only the change that is lost leaves nothing known", file: "decide/settle.go",
		old: "row.Content != nil && row.Version == c.Version:", new: "row.Content != nil:",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "an oversized change leaves the dam state", file: "decide/settle.go",
		old: "l.Payload = ch.Doc\n", new: "l.Payload = ch.Doc\n\t\trow.Content, row.Version = c.content, ch.Version\n\t\tev.states.Set(row)\n",
		in: "./decide", test: "TestOversizedChange",
	},
	{
		rule: "nothing is retracted that was never sent", file: "decide/settle.go",
		old: "if !row.Found && c.output == nil {", new: "if false {",
		in: "./decide", test: "TestOnlyWhatACustomerHasIsHeldBack",
	},
	{
		rule: "refused only if the state still has that version", file: "decide/settle.go",
		old: "row.Version == c.Version && row.Content != nil", new: "row.Content != nil",
		in: "./decide", test: "TestI9RefusedContentIsHeldBack",
	},
	{
		rule: "a state that was reset stays unknown", file: "decide/settle.go",
		old: "row.Version == c.Version && row.Content != nil", new: "row.Version == c.Version",
		in: "./decide", test: "TestI9WhatLetsRefusedContentPass",
	},
	{
		rule: "any other content passes a refusal", file: "decide/settle.go",
		old: "max(row.Version, ch.Version), false\n", new: "max(row.Version, ch.Version), row.Refused\n",
		in: "./decide", test: "TestI9RefusedContentIsHeldBack",
	},
	{
		rule: "a letter that something newer overtook is obsolete", file: "decide/settle.go",
		old: "row.Found && row.Version > c.Version, store.LetterReplayed", new: "false, store.LetterReplayed",
		in: "./decide", test: "TestI9AnOldLetterIsObsolete",
	},
	{
		rule: "a resent change that is the newest is under way, not refused", file: "decide/control.go",
		old: "row.Refused = false // it is under way again\n", new: "_ = row\n",
		in: "./decide", test: "TestI9AResentChangeIsUnderWay",
	},
	{
		rule: "what was sent again keeps a tombstone", file: "decide/control.go",
		old: "newest = max(newest, row.Version)", new: "_ = row",
		in: "./decide", test: "TestAPurgeWaitsForWhatWasSentAgain",
	},
	{
		rule: "after a reset the next event is evaluated", file: "decide/control.go",
		old: "ev.current, ev.dirty = false, true", new: "ev.dirty = true",
		in: "./decide", test: "TestReset",
	},
	{
		rule: "an entity that appears or goes is for every service", file: "decide/evaluate.go",
		old: "ev.present != wasPresent || ", new: "ev.present != wasPresent && false || ",
		in: "./decide", test: "TestRetraction",
	},
	{
		rule: "a claim of an earlier batch has no second effect", file: "decide/claims.go",
		old: "before || now {", new: "now && !before || now {",
		in: "./decide", test: "TestARepeatedClaimIsStale",
	},
	{
		rule: "a claim has one effect in a batch", file: "decide/claims.go",
		old: "c.now[r.claimID] = struct{}{}", new: "_ = c.now",
		in: "./decide", test: "TestAClaimHasOneEffect",
	},
	{
		rule: "a key with other content is a conflict", file: "decide/claims.go",
		old: "gap.Abs() < r.keep && has.Content == r.use.Content:", new: "gap.Abs() < r.keep:",
		in: "./decide", test: "TestAKeyHasOneEffect",
	},
	{
		rule: "an assignment that ends halfway owns nothing", file: "decide/decider.go",
		old: "d.Revoked(topic, partitions) // nobody", new: "_ = partitions // nobody",
		in: "./decide", test: "TestAnAssignmentThatEndsHalfwayOwnsNothing",
	},
	{
		rule: "an idle owner learns that another configuration is active", file: "decide/worker.go",
		old: "w.d.halt(err) // without events", new: "_ = err // without events",
		in: "./decide", test: "TestAnIdleOwnerOfAnOlderRevisionEnds",
	},
}
