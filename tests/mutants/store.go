package main

// diskMutants are of the layer between SQLite and an unreliable disk.
var diskMutants = []mutant{
	{
		rule: "a page is compared with its checksum", in: "store/sqlite/disk", fn: "file.verify",
		find: "_1 != _2(_3, _4) && (", put: "false && (",
		test: "./store/sqlite TestFlippedBits",
	},
	{
		rule: "the checksum of a page has its number", in: "store/sqlite/disk", fn: "checksum",
		find: "_1._2._3(_4[:], uint64(_5))", put: "_1._2._3(_4[:], uint64(0*_5))",
		test: "./store/sqlite TestMisplacedAndZeroedPages/misplaced",
	},
	{
		rule: "a page of zeroes is damaged", in: "store/sqlite/disk", fn: "file.verify",
		find: "(_1 != 0 || ", put: "(_1 != 0 || false && ",
		test: "./store/sqlite TestMisplacedAndZeroedPages/zeroed",
	},
	{
		rule: "a page moved by another program has no checksum of older content", in: "store/sqlite/disk", fn: "file.verify",
		find: "clear(_1)", put: "_ = _1",
		test: "./store/sqlite TestAnotherProgramLooksAfterAKill",
	},
	{
		rule: "pages of a file that another program wrote get checksums", in: "store/sqlite/disk", fn: "file.verify",
		find: "_1._2._3._4(_5 == 0)", put: "_1._2._3._4(false)",
		test: "./store/sqlite TestFilesOfOtherPrograms",
	},
	{
		rule: "a write-ahead log does not end in the middle", in: "store/sqlite/disk", fn: "verifyLog",
		find: "_1 < 2; ", put: "_1 < 1<<30; ",
		test: "./store/sqlite TestFlippedBits",
	},
	{
		rule: "nothing is written after an fsync that failed", in: "store/sqlite/disk", fn: "file.Sync",
		find: `_1._2._3(_4._5("%w: %s", _6, _1._7))`, put: `_ = _4._5("%w", _6)`,
		test: "./store/sqlite TestFailedSyncEndsAllWriting",
	},
	{
		rule: "a commit is synced before it is acknowledged", in: "store/sqlite", fn: "Open",
		find: `"synchronous(FULL)"`, put: `"synchronous(OFF)"`,
		test: "TestPowerLoss",
	},
	{
		rule: "records of a command beside the process are noticed", in: "internal/transport/embedded", fn: "Logs.follow",
		find: "|| _1 == _2 {", put: "|| _1 != _2 {",
		test: "TestRecordsOfAnotherProcess",
	},
	{
		rule: "a state file that was exchanged is a backup", in: "internal/transport/embedded", fn: "Logs.DetectRestore",
		find: "if _1._2 != _3 {", put: "if _1._2 != _3 && false {",
		test: "TestDetectRestore",
	},
	{
		rule: "a state file whose logs went back is a backup", in: "internal/transport/embedded", fn: "Logs.DetectRestore",
		find: "if _1 < len(_2) && _2[_1] < _3 {", put: "if _1 < len(_2) && false && _3 > 0 {",
		test: "TestDetectRestore",
	},
	{
		rule: "what a bit turned at the end of a sink's file is not cut off", in: "sinks/file", fn: "Sink.repairEnd",
		find: "!_1 && _2(_3):", put: "false:",
		test: "TestFlippedBitsAtTheEnd",
	},
}

// storeMutants are of the stores' comparisons and writes. PostgreSQL's need a server.
var storeMutants = []mutant{
	{
		rule: "token in the watermark row", in: "store/sqlite",
		find: "AND next_offset = ? AND token = ?", put: "AND next_offset = ? AND (token = ? OR 1)",
		test: "TestConformance/Owners",
	},
	{
		rule: "a decision begins where the one before it ended", in: "store/sqlite",
		find: "AND next_offset = ? AND token = ?", put: "AND (next_offset = ? OR 1) AND token = ?",
		test: "TestConformance/Decide",
	},
	{
		rule: "a takeover writes its token", in: "store/sqlite",
		find: "(partition, generation) DO UPDATE SET token = excluded.token", put: "(partition, generation) DO UPDATE SET token = watermarks.token",
		test: "TestConformance/TakeOver/I1_I5",
	},
	{
		rule: "a takeover ends the owners of older generations", in: "store/sqlite",
		find: "SET token = x'' WHERE generation <", put: "SET token = token WHERE generation <",
		test: "TestConformance/TakeOver",
	},
	{
		rule: "an older generation takes nothing over", in: "store/sqlite", fn: "Store.TakeOver",
		find: "if _1 == nil && _2 {", put: "if false {",
		test: "TestConformance/TakeOver",
	},
	{
		rule: "a decision is of the active revision", in: "store/sqlite", fn: "expectRevision",
		find: "if _1 != _2 {", put: "if false {",
		test: "TestConformance/Decide",
	},
	{
		rule: "what is loaded stands under the owner's token and offset", in: "store/sqlite", fn: "Store.load",
		find: "if _1 == nil && !_2 {", put: "if false {",
		test: "TestConformance/Decide",
	},
	{
		rule: "claims and keys are as a decision found them", in: "store/sqlite", fn: "tx.putDecided",
		find: "if _1 == nil && _2 == 0 {", put: "if _1 == nil && _2 < 0 {",
		test: "TestConformance/Claims",
	},
	{
		rule: "an entity is written only over what was read", in: "store/sqlite",
		find: "AND writes = ?7`", put: "AND (writes = ?7 OR 1)`",
		test: "TestConformance/States",
	},
	{
		rule: "an entity that is not as it was found fences the decision", in: "store/sqlite", fn: "tx.putEntities",
		find: "if _1 == nil && _2 != 1 {", put: "if _1 == nil && _2 > 1 {",
		test: "TestConformance/States",
	},
	{
		rule: "a page in which a state was set is written", in: "store", fn: "States.Set",
		find: "_1._2[_3]._4, _1._5[_3] = _6, true", put: "_1._2[_3]._4, _1._5[_3] = _6, number == 0",
		test: "./store/sqlite TestConformance/States",
	},
	{
		rule: "a page in which nothing was set stays", in: "store/sqlite",
		find: "states = coalesce(?8, states)", put: "states = coalesce(?8, x'')",
		test: "TestConformance/States",
	},
	{
		rule: "what an owner remembers is not changed by who decides from it", in: "store", fn: "States.Set",
		find: "case !_1:\n\t\t_2 = bytes.Clone(_2)", put: "case !_1:\n\t\t_2 = bytes.TrimSuffix(_2, nil)",
		test: "TestStatesAreAMap",
	},
	{
		rule: "the token of the row of a partition", in: "store/sqlite",
		find: "WHERE partition = ?1 AND token = ?2", put: "WHERE partition = ?1 AND (token = ?2 OR 1)",
		test: "TestConformance/Progress",
	},
	{
		rule: "no position passes the watermark", in: "store/sqlite", fn: "Store.SwapProgress",
		find: "_1._2(_3[_4]._5) <= _6._7(_8)", put: "true",
		test: "TestConformance/Progress",
	},
	{
		rule: "positions are of the active revision", in: "store/sqlite", fn: "Store.SwapProgress",
		find: "(_1 != _2 || _1 == 0)", put: "false",
		test: "TestConformance/Progress",
	},
	{
		rule: "whose changes are gone is found from the position on", in: "store", fn: "MovedIn",
		find: "_1._2 >= _3", put: "_1._2 > _3",
		test: "./store/sqlite TestConformance/Moved",
	},
	{
		rule: "a page has a frame, however large", in: "store/shared",
		find: "WHERE place = 1 OR total <= ?3", put: "WHERE total <= ?3",
		test: "./store/sqlite TestConformance/Frames",
	},
	{
		rule: "frames are dropped until the log has its size", in: "store/shared",
		find: "AS p) - CAST(?3 AS bigint))", put: "AS p) - CAST(?3 AS bigint) - 1)",
		test: "./store/sqlite TestConformance/Retention",
	},
	{
		rule: "frames are dropped to the last page", in: "store/shared", fn: "Store.DropFrames",
		find: "_1 != nil || _2 < dropPage {", put: "_1 != nil || _2 <= dropPage {",
		test: "./store/sqlite TestConformance/Retention",
	},
	{
		rule: "token in the watermark row (PostgreSQL)", in: "store/postgres",
		find: "WHERE w.next_offset = m.origin AND w.token = m.token", put: "WHERE w.next_offset = m.origin",
		test: "TestConformance/Decide",
	},
	{
		rule: "a takeover writes its token (PostgreSQL)", in: "store/postgres",
		find: "(partition, generation) DO UPDATE SET token = excluded.token", put: "(partition, generation) DO UPDATE SET token = watermarks.token",
		test: "TestConformance/TakeOver/a_decision_about_nothing",
	},
	{
		rule: "the token of the row of a partition (PostgreSQL)", in: "store/postgres",
		find: "p.token = s.old AND ", put: "",
		test: "TestConformance/Progress",
	},
	{
		rule: "no position passes the watermark (PostgreSQL)", in: "store/postgres",
		find: "s.top <= coalesce", put: "0 <= coalesce",
		test: "TestConformance/Progress",
	},
	{
		rule: "a letter that dies again is not pruned (PostgreSQL)", in: "store/shared",
		find: "DELETE FROM dead_letters WHERE last_at < $1 AND", put: "DELETE FROM dead_letters WHERE",
		test: "./store/postgres TestALetterThatDiesAgainIsNotPruned",
	},
	{
		rule: "an open letter that dies again is not pruned (PostgreSQL)", in: "store/shared",
		find: "WHERE id = ANY($1) AND last_at < $2 AND state = 'open'", put: "WHERE id = ANY($1) AND (last_at < $2 OR state = 'open') AND state = 'open'",
		test: "./store/postgres TestALetterThatDiesAgainIsNotPruned",
	},
	{
		rule: "positions of forgotten services go, and their owner reads the row again", in: "store/shared", fn: "withoutPositions",
		find: "if len(_1) < len(_2) {", put: "if false {",
		test: "./store/sqlite TestOperatorConformance/I7_a_forgotten_service_leaves_nothing,_and_its_number_is_never_used_again",
	},
	{
		rule: "the job has the numbers of forgotten services", in: "operate", fn: "Forget",
		find: "_1 := json.Unmarshal(_2.Parameters, &_3.Services); _1 != nil", put: "_1 := error(nil); _1 != nil",
		test: "TestForgettingSurvivesADeathAtEveryStep",
	},
}
