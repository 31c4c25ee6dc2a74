package main

// The logs, and what stands in them.
var transportMutants = []mutant{
	{
		rule: "nothing is appended behind a record that failed in the round before", file: "transport/producer.go",
		old: "why: pc.op.sequence.Broken()}", new: "}",
		in: "./transport", test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "no round of a line begins before the last one is answered", file: "transport/producer.go",
		old: "case l.flying > 0 || l.ready:", new: "case l.ready:",
		in: "./transport", test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "a partition that takes nothing holds up nothing else", file: "transport/producer.go",
		old: "return lineKey{r.Topic, r.Partition}", new: "return lineKey{r.Topic, unpinned}",
		in: "./transport", test: "TestAPartitionThatTakesNothingHoldsUpNothingElse",
	},
	{
		rule: "a failed batch breaks the order of those behind it", file: "transport/producer.go",
		old: "op.sequence.Break(err)", new: "_ = op",
		in: "./transport", test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "a refused batch breaks the order of those behind it", file: "transport/producer.go",
		old: "sequence.Break(tooLarge)", new: "_ = sequence",
		in: "./transport", test: "TestTooLargeIsRefusedBeforeAnythingOfItsBatch",
	},
	{
		rule: "a client that lost its sequence is replaced", file: "transport/producer.go",
		old: "c.lost = c.lost || clientLost(err)", new: "_ = clientLost",
		in: "./transport", test: "TestNothingIsAppendedBehindAFailedBatch",
	},
	{
		rule: "what inbox partition p decided stands in partition p", file: "transport/producer_client.go",
		old: "k.Partition = r.Partition", new: "k.Partition = unpinned",
		in: "./transport", test: "TestPinnedRecordsGoWhereTheyArePinned",
	},
	{
		rule: "the position is behind what was acknowledged", file: "transport/assignment.go",
		old: "last.Offset+1, last.LeaderEpoch", new: "last.Offset+2, last.LeaderEpoch",
		in: "./transport", test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "a batch that was not acknowledged comes first in the next subscription", file: "transport/assignment.go",
		old: "a.queue = append(b.fetched, a.queue...)", new: "a.queue = append(a.queue, b.fetched...)",
		in: "./transport", test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "what comes again says so", file: "transport/assignment.go",
		old: "a.known = max(a.known, b.last().Offset+1)", new: "a.known = max(a.known, b.last().Offset)",
		in: "./transport", test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "a resent change stands at its control record", file: "change/frame.go",
		old: "return c.Resent\n", new: "return c.Version\n",
		in: "./change", test: "TestFrameComesBack",
	},
	{
		rule: "a frame that links past its beginning is refused", file: "change/frame.go",
		old: "f.From >= f.To || f.Prev > f.From ||", new: "f.From >= f.To ||",
		in: "./change", test: "TestParseFrameRefuses",
	},
	{
		rule: "changes outside their frame are refused", file: "change/frame.go",
		old: " || c.Position() >= s.frame.To {", new: " {",
		in: "./change", test: "TestParseFrameRefuses",
	},
	{
		rule: "more changes than were counted are refused", file: "change/frame.go",
		old: "if len(r.Rest) > 0 {", new: "if false {",
		in: "./change", test: "TestParseFrameRefuses",
	},
	{
		rule: "a claimed length is not believed", file: "change/packed.go",
		old: "if n > maxUnpacked || n > maxRatio*len(body) {", new: "if false {",
		in: "./change", test: "TestAClaimIsNotBelieved",
	},
}
