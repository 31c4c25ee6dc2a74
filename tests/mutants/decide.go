package main

// The owner of a partition, and what it decides.
var decideMutants = []mutant{
	{
		rule: "take over after a failed publish", file: "decide/lane.go",
		old: "if err != nil && l.broken == nil {", new: "if false {",
		in: "./decide", test: "TestAFailedPublishIsRepeatedFromTheStore",
	},
	{
		rule: "no reset while publishes are unanswered", file: "decide/lane.go",
		old: "broken, n := l.broken, l.unpublished", new: "broken, n := l.broken, 0",
		in: "./decide", test: "TestTheProducerIsResetWhenAllIsAnswered",
	},
	{
		rule: "what failed is published again although a take-over mended the producer", file: "decide/lane.go",
		old: "l.broken, l.lost = nil, true", new: "l.broken = nil",
		in: "./decide", test: "TestATakeOverThatMendsTheProducer",
	},
	{
		rule: "what is lost is published again before the next decision", file: "decide/lane.go",
		old: "needed := l.broken != nil || l.lost", new: "needed := l.broken != nil",
		in: "./decide", test: "TestATakeOverThatMendsTheProducer",
	},
	{
		rule: "a store that went back is read again", file: "decide/lane.go",
		old: "if o.next < old.next {", new: "if false {",
		in: "./decide", test: "TestAStoreThatWentBackEndsTheSubscription",
	},
	{
		rule: "an idle owner compares its watermarks", file: "decide/lane.go",
		old: "return err != nil && store.ClassOf(err) == store.Fenced", new: "return false",
		in: "./decide", test: "TestAnIdleOwnerDeletesWhatWasAcknowledged",
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
		rule: "an outbox row is deleted when its publish is acknowledged", file: "decide/lane.go",
		old: "o.published = append(o.published, published[m.Partition]...)", new: "_ = o",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "an outbox row stays when its publish failed", file: "decide/lane.go",
		old: "err == nil && o != nil && o.token == m.Token", new: "o != nil && o.token == m.Token",
		in: "./decide", test: "TestAShutdownKeepsWhatFailed",
	},
	{
		rule: "an owner deletes by what it saw acknowledged under its own token", file: "decide/lane.go",
		old: "err == nil && o != nil && o.token == m.Token", new: "err == nil && o != nil",
		in: "./decide", test: "TestAnAcknowledgementOfAnEarlierOwnership",
	},
	{
		rule: "acknowledged ids are forgotten", file: "decide/lane.go",
		old: "return gone[id] })", new: "return false })",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "acknowledged ids are forgotten with the decision that deleted them", file: "decide/decide.go",
		old: "l.forget(moves, published)", new: "_ = published",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "an outbox row that a take-over published is deleted", file: "decide/lane.go",
		old: "o.published = append(o.published, b.ID)", new: "_ = b",
		in: "./decide", test: "TestAcknowledgedRowsAreDeletedOnce",
	},
	{
		rule: "an idle owner deletes what was acknowledged", file: "decide/lane.go",
		old: "if len(o.published) > 0 {", new: "if false {",
		in: "./decide", test: "TestAnIdleOwnerDeletesWhatWasAcknowledged",
	},
	{
		rule: "a take-over publishes what the outbox holds", file: "decide/lane.go",
		old: "return l.republish(ctx, found)", new: "return nil",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "a take-over waits for the acknowledgements", file: "decide/lane.go",
		old: "case err := <-done:\n\t\tif err != nil {", new: "case err := <-done:\n\t\tif false {",
		in: "./decide", test: "TestATakeOverWhosePublishFails",
	},
	{
		rule: "what a take-over publishes says that it may be a repetition", file: "decide/lane.go",
		old: "r.Headers = []transport.Header{republished}", new: "_ = republished",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "a take-over remembers the last frame's to", file: "decide/lane.go",
		old: "next: f.NextOffset, lastTo: f.LastTo}", new: "next: f.NextOffset}",
		in: "./decide", test: "TestOwnersLinkTheirFrames",
	},
	{
		rule: "outboxes of partitions that are no more are published", file: "decide/lane.go",
		old: "slices.Concat(partitions, left)", new: "partitions",
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
		old: "return l.decide(ctx, batch[half:])", new: "return nil",
		in: "./decide", test: "TestABatchIsCutWhereItsOutcomeIsTooLarge",
	},
	{
		rule: "a batch whose outcome is too large is cut", file: "decide/batch.go",
		old: "if err != nil || room < 0 {", new: "if false {",
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
		rule: "frames are cut between offsets", file: "decide/frames.go",
		old: "of, fit = c.Place(), n", new: "of, fit = c.Place(), n+1",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "the last part of a frame says so", file: "decide/frames.go",
		old: "h.Last = true", new: "h.Last = h.Part == 0",
		in: "./decide", test: "TestFramesAreCut",
	},
	{
		rule: "fence before noise", file: "decide/evaluate.go",
		old: "ev.fence.note(e, r.mark, r.version, r.at)", new: "if changed {\n\t\tev.fence.note(e, r.mark, r.version, r.at)\n\t}",
		in: "./decide", test: "TestI5NoiseIsRememberedByTheFence",
	},
	{
		rule: "a repeated position is stale", file: "decide/fence.go",
		old: "e.Offset <= p.Offset {", new: "e.Offset < p.Offset-1 {",
		in: "./decide", test: "TestI5PositionAndSequence",
	},
	{
		rule: "an older sequence is stale", file: "decide/fence.go",
		old: "inbox.CompareSequence(e.Sequence, s.Sequence) < 0", new: "false",
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
		old: "if equal && !c.force && !again {", new: "if false && equal && !again {",
		in: "./decide", test: "TestI9RefusedContentIsHeldBackWhenEvaluated",
	},
	{
		rule: "last seen: the dam remembers what was sent", file: "decide/settle.go",
		old: "row.Content, row.Version, row.Refused = content, ", new: "row.Version, row.Refused = ",
		in: "./decide", test: "TestRedecide",
	},
	{
		rule: "a lost change that is too large to be made again leaves nothing known", file: "decide/settle.go",
		old: "if lost(c.record.Control) && control(", new: "if false && control(",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "a lost change whose projection fails leaves nothing known", file: "decide/evaluate.go",
		old: "\t\t\tev.unknown(r, services)\n\t\t\treturn\n", new: "\t\t\treturn\n",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "only the change that is lost leaves nothing known", file: "decide/settle.go",
		old: "row.Content != nil && row.Version == c.Version:", new: "row.Content != nil:",
		in: "./decide", test: "TestALostChangeThatCannotBeMadeAgain",
	},
	{
		rule: "an oversized change leaves the dam state", file: "decide/settle.go",
		old: "out.letters, out.causes = append(out.letters, l), append(out.causes, c.record)",
		new: "out.letters, out.causes = append(out.letters, l), append(out.causes, c.record)\n\t\t\trow.Content, row.Version = content, ch.Version\n\t\t\tc.states.Set(row)",
		in:  "./decide", test: "TestOversizedChange",
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
		old: "row.Found && row.Version > r.Version, store.LetterReplayed", new: "false, store.LetterReplayed",
		in: "./decide", test: "TestI9AnOldLetterIsObsolete",
	},
	{
		rule: "a resent change that is the newest is under way, not refused", file: "decide/settle.go",
		old: "row.Refused = false\n", new: "_ = row\n",
		in: "./decide", test: "TestI9AResentChangeIsUnderWay",
	},
	{
		rule: "after a reset the next event is evaluated", file: "decide/evaluate.go",
		old: "ev.current, ev.dirty = false, true", new: "ev.dirty = true",
		in: "./decide", test: "TestReset",
	},
	{
		rule: "an entity that appears or goes is for every service", file: "decide/evaluate.go",
		old: "present != wasPresent || ", new: "present != wasPresent && false || ",
		in: "./decide", test: "TestRetraction",
	},
	{
		rule: "a claim of an earlier batch has no second effect", file: "decide/claims.go",
		old: "before || now {", new: "now && !before || now {",
		in: "./decide", test: "TestARepeatedClaimIsStale",
	},
	{
		rule: "a claim has one effect in a batch", file: "decide/claims.go",
		old: "c.now[r.once] = struct{}{}", new: "_ = c.now",
		in: "./decide", test: "TestAClaimHasOneEffect",
	},
	{
		rule: "a key with other content is a conflict", file: "decide/claims.go",
		old: "apart.Abs() < r.keep && has.Content == r.use.Content:", new: "apart.Abs() < r.keep:",
		in: "./decide", test: "TestAKeyHasOneEffect",
	},
}
