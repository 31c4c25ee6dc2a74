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
		find: "&& !_1._2._3.Aside()", put: "",
		test: "TestAStuckPartitionOfTheInbox/deletions",
	},
	{
		rule: "deletions that are set aside end the piece", in: "sources/postgres", fn: "rows.sweep",
		find: "_1 != nil || _2._3()._4(_5._6)", put: "_1 != nil && false || _2._3()._4(_5._6)",
		test: "TestAStuckPartitionOfTheInbox/deletions",
	},
	{
		rule: "a table is known by its OID", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.OID != _2.OID:", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its schema", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.Schema != _2.Schema:", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its entity", in: "sources/postgres", fn: "identity.differs",
		find: "case !_1.Equal(_2.Entity, _3.Entity):", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its publication", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.Publication != _2.Publication:", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its entry in the publication", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.Entry != _2.Entry:", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its leaves", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.Leaves != _2.Leaves:", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by its file", in: "sources/postgres", fn: "identity.differs",
		find: "case _1.rewritten(_2):", put: "case false:",
		test: "TestIdentity",
	},
	{
		rule: "a table is known by the types of its columns", in: "sources/postgres", fn: "identity.differs",
		find: "; _1 && _2 != _3._4[_5] {", put: "; false && _1 && _2 != _3._4[_5] {",
		test: "TestIdentity",
	},
	{
		rule: "a rewrite is known by the table of large values", in: "sources/postgres", fn: "identity.rewritten",
		find: "_1.Toast != _2.Toast || ", put: "",
		test: "TestIdentity",
	},
	{
		rule: "a rewrite is known by its columns", in: "sources/postgres", fn: "identity.rewritten",
		find: "_1.Shape != _2.Shape || ", put: "",
		test: "TestIdentity",
	},
	{
		rule: "a table that was unlogged for a while is another one", in: "sources/postgres", fn: "identity.rewritten",
		find: " || _1.Toast == 0 && !_1.Listed", put: "",
		test: "TestIdentity",
	},
	{
		rule: "a state of a table has its key", in: "sources/postgres", fn: "identity.same",
		find: " && _1.Key == _2.Key", put: "",
		test: "TestIdentity",
	},
	{
		rule: "rows are read again that passed while the table was not read", in: "sources/postgres", fn: "table.continues",
		find: "case !_1:\n", put: "case false && !_1:\n",
		test: "TestTablesThatTheConfigurationChanges",
	},
	{
		rule: "a table is what its snapshot sees", in: "sources/postgres", fn: "table.hold",
		find: " || !_1.same(_2.identity)", put: " || false && !_1.same(_2.identity)",
		test: "TestRewrittenBeforeItsLock",
	},
	{
		rule: "rows are read when their transaction is visible", in: "sources/postgres", fn: "decoder.ask",
		find: "if _1.xid == 0 {", put: "if _1.xid == 0 || true {",
		test: "TestATransactionThatWaitsForAStandby",
	},
	{
		rule: "a session reads back who is heard", in: "sources/postgres", fn: "session.claim",
		find: "_1.Session != _2 })", put: "_1.Session != _2 && false })",
		test: "TestANumberThatWasGivenTwice",
	},
	{
		rule: "a number that a restored store had lost is a gap", in: "sources/postgres", fn: "mark.unheard",
		find: "if _1 {\n", put: "if false && _1 {\n",
		test: "TestWhatWasHeardShowsAGap",
	},
	{
		rule: "what was heard of lost commits is a gap", in: "sources/postgres", fn: "mark.unheard",
		find: "&& !_1.wrote(", put: "&& false && !_1.wrote(",
		test: "TestWhatWasHeardShowsAGap",
	},
	{
		rule: "what was heard above the end of the log is a gap", in: "sources/postgres", fn: "mark.unheard",
		find: "&& _1.Offset > _2:", put: "&& false && _1.Offset > _2:",
		test: "TestWhatWasHeardShowsAGap",
	},
	{
		rule: "a barrier of a later epoch is a gap", in: "sources/postgres", fn: "mark.unheard",
		find: "case _1 == 0:\n\t\t\tif _2 > _3.Era {", put: "case _1 == 0:\n\t\t\tif false {",
		test: "TestWhatWasHeardShowsAGap",
	},
	{
		rule: "a place of a later epoch is a gap", in: "sources/postgres", fn: "mark.unheard",
		find: "case _1 > _2.Era:", put: "case false:",
		test: "TestWhatWasHeardShowsAGap",
	},
	{
		rule: "a source that was renamed takes a higher number", in: "sources/postgres", fn: "session.claim",
		find: "_1 = max(_1, _2.Number)\n\t\t}\n\t}", put: "_ = _2\n\t\t}\n\t}",
		test: "TestARenamedSourceTakesAHigherNumber",
	},
	{
		rule: "a barrier shows that a restore lost its number", in: "store/shared", fn: "Heard",
		find: "_1 = append(_1, sqlTearSourceLog(_2))", put: "_ = _2",
		test: "./store/sqlite TestConformance",
	},
}
