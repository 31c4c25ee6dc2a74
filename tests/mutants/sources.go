package main

// sourceMutants are of the sources.
var sourceMutants = []mutant{
	{
		rule: "the slot stays before the oldest change that is set aside", in: "sources/postgres", fn: "changes.handOut",
		find: "case len(_1._2) > 0:", put: "case false:",
		test: "TestAStuckPartitionOfTheInbox/changes,_and_then_a_kill",
	},
	{
		rule: "a change is durable when all before it are", in: "sources/postgres", fn: "changes.handOut",
		find: "case _1 > 0:", put: "case _1 > 1000:",
		test: "TestAStuckPartitionOfTheInbox/changes,_and_then_a_kill",
	},
	{
		rule: "nothing is handed out again before what was set aside", in: "sources/internal/handout", fn: "Lane.refuses",
		find: "_1 == nil || !_1.Aside()", put: "true || !_1.Aside()",
		test: "TestNothingIsHandedOutAgainBeforeWhatIsAside",
	},
	{
		rule: "what is refused behind it is handed out again in another session", in: "sources/internal/handout", fn: "Lane.await",
		find: "_1._2 = _1._2 || !_3", put: "_ = _1._2 || !_3",
		test: "TestNothingIsHandedOutAgainBeforeWhatIsAside",
	},
	{
		rule: "frames of one transaction wait for the refused one", in: "ingest", fn: "Stage.enter",
		find: "!_1._2[0]._3 || ", put: "",
		test: "TestNothingPassesWhatWasSetAside",
	},
	{
		rule: "rows that are set aside are read again", in: "sources/postgres", fn: "rows.readRange",
		find: "_1, _2, _3 = nil, 0, _4 != nil;", put: "_1, _2, _3 = nil, 0, _4 != nil && false;",
		test: "TestAStuckPartitionOfTheInbox/rows",
	},
	{
		rule: "a sweep ends when its deletions are durable", in: "sources/postgres", fn: "session.due",
		find: "&& !_1._2._3[_4]._5.Aside()", put: "",
		test: "TestAStuckPartitionOfTheInbox/deletions",
	},
	{
		rule: "deletions that are set aside end the piece", in: "sources/postgres", fn: "rows.sweep",
		find: "_1 != nil || _2._3()._4(_5._6)", put: "_2._3()._4(_5._6)",
		test: "TestAStuckPartitionOfTheInbox/deletions",
	},
	{
		rule: "a truncate lists what is stored when all before it is durable", in: "sources/postgres", fn: "changes.stored",
		find: "for _1._2._3() < _1._4 {", put: "for false {",
		test: "TestAStuckPartitionOfTheInbox/a_truncate",
	},
}
