package main

// transportMutants are of the logs and their frames.
var transportMutants = []mutant{
	{
		rule: "nothing is appended behind a record that failed in the round before", in: "internal/transport", fn: "Producer.launch",
		find: "_1: _2._3._4._5()}", put: "}",
		test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "no round of a line begins before the last one is answered", in: "internal/transport", fn: "Producer.schedule",
		find: "case _1._2 > 0 || _1._3:", put: "case _1._3:",
		test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "a partition that takes nothing holds up nothing else", in: "internal/transport", fn: "Producer.lineOf",
		find: "return _1{_2._3, _2._4}", put: "return _1{_2._3, unpinned}",
		test: "TestAPartitionThatTakesNothingHoldsUpNothingElse",
	},
	{
		rule: "a failed batch breaks the order of those behind it", in: "internal/transport", fn: "Producer.answered",
		find: "_1._2._3(_4)", put: "_ = _1",
		test: "TestARoundLooksAtFailuresOfTheOneBefore",
	},
	{
		rule: "a refused batch breaks the order of those behind it", in: "internal/transport", fn: "Producer.hand",
		find: "_1._2(tooLarge)", put: "_ = _1",
		test: "TestTooLargeIsRefusedBeforeAnythingOfItsBatch",
	},
	{
		rule: "a client that lost its sequence is replaced", in: "internal/transport", fn: "Producer.answered",
		find: "_1._2 = _1._2 || _3(_4)", put: "_ = _3",
		test: "TestNothingIsAppendedBehindAFailedBatch",
	},
	{
		rule: "what inbox partition p decided stands in partition p", in: "internal/transport", fn: "toKgo",
		find: "_1._2 = _3._2", put: "_1._2 = unpinned",
		test: "TestPinnedRecordsGoWhereTheyArePinned",
	},
	{
		rule: "the position is behind what was acknowledged", in: "internal/transport", fn: "assignment.passed",
		find: "_1._2+1, _1._3", put: "_1._2+2, _1._3",
		test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "a batch that was not acknowledged comes first in the next subscription", in: "internal/transport", fn: "assignment.requeue",
		find: "_1._2 = append(slices.Clone(_3._4), _1._2...)", put: "_1._2 = append(_1._2, _3._4...)",
		test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "the offset stays before what was set aside", in: "internal/transport", fn: "assignment.moveCommit",
		find: "range _1.aside {", put: "range _1.aside[:0] {",
		test: "TestRecordsAreSetAside",
	},
	{
		rule: "what comes again says so", in: "internal/transport", fn: "assignment.handedOut",
		find: "_1._2 = max(_1._2, _3._4()._5+1)", put: "_1._2 = max(_1._2, _3._4()._5)",
		test: "TestPositionsFollowAcknowledgements",
	},
	{
		rule: "a resent change stands at its control record", in: "change", fn: "Change.Position",
		find: "return _1.Resent\n", put: "return _1.Version\n",
		test: "TestFrameComesBack",
	},
	{
		rule: "a frame that links past its beginning is refused", in: "change", fn: "ParseFrameHeader",
		find: "_1._2 >= _1._3 || _1._4 > _1._2 ||", put: "_1._2 >= _1._3 ||",
		test: "TestParseFrameRefuses",
	},
	{
		rule: "changes outside their frame are refused", in: "change", fn: "Slice.All",
		find: " || _1._2() >= _3._4._5 {", put: " {",
		test: "TestParseFrameRefuses",
	},
	{
		rule: "more changes than were counted are refused", in: "change", fn: "Slice.All",
		find: "len(_1._2) > 0 || _3 != _4._5", put: "_3 != _4._5",
		test: "TestParseFrameRefuses",
	},
	{
		rule: "a claimed length is not believed", in: "change", fn: "unpack",
		find: "if _1 > _2 || _1 > _3*len(_4) {", put: "if false {",
		test: "TestAClaimIsNotBelieved",
	},
}
