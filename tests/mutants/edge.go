package main

// edgeMutants are of ingest, its gate, the sinks, and the configuration in force.
var edgeMutants = []mutant{
	{
		rule: "the mark comes after the append", in: "ingest", fn: "Stage.ingestFrame",
		find: "if _1.async != nil {", put: "_1.appended(work, of, false)\n\tif _1.async != nil {",
		test: "TestMarkComesAfterTheAppend",
	},
	{
		rule: "nothing is appended behind what was refused", in: "ingest", fn: "Stage.enter",
		find: "if _1.refused {", put: "if false && _1.refused {",
		test: "TestNothingPassesWhatWasSetAside",
	},
	{
		rule: "what is set aside is bounded", in: "ingest", fn: "Stage.setAside",
		find: "if !_1._2._3._4.TryAcquire(_5) {", put: "if !_1._2._3._4.TryAcquire(0 * _5) {",
		test: "TestEventsOfAStuckPartitionAreSetAside",
	},
	{
		rule: "a gate that is away lets everything through", in: "ingest", fn: "Stage.filterSeen",
		find: "_1._2._3._4(_5(len(_6)))\n\t\treturn _7", put: "_1._2._3._4(_5(len(_6)))\n\t\treturn nil",
		test: "TestGateDownLetsThroughAndCounts",
	},
	{
		rule: "an id with other content in one frame is another event", in: "ingest", fn: "Stage.filterSeen",
		find: "_1 = _2 == _3._4._5", put: "_1 = true || _2 == _3._4._5",
		test: "TestRepetitionInOneFrame",
	},
	{
		rule: "no append begins after the partition is somebody else's", in: "ingest", fn: "Stage.append",
		find: "if _1._2() != nil {\n\t\treturn _3._4(_1)\n\t}\n\t_5, _6", put: "_5, _6",
		test: "TestAFrameWhoseMessageHasEnded",
	},
	{
		rule: "an event that cannot be taken in is a letter before its frame is done", in: "ingest", fn: "Stage.ingestFrame",
		find: "return _1._2._3._4(_5, _6) }); _7 != nil {", put: "return _1._2._3._4(_5, _6) }); false {",
		test: "TestLettersThatCannotBeStoredHoldUpTheirFrame",
	},
	{
		rule: "an event under a claim does not ask the gate", in: "ingest", fn: "Prepared.WithClaim",
		find: `_1._2._3._4 = ""`, put: "_ = _1._2._3",
		test: "TestStageTakesThePreparedEvent",
	},
	{
		rule: "an event of a claim without an answer is appended under it", in: "api/events", fn: "Handler.push",
		find: "_1._2._3(_1._4, _5, _1._6, _7._8._9)", put: "_ = _7",
		test: "TestNotDurableInTime",
	},
	{
		rule: "a key with an answer is not appended again", in: "api/events", fn: "row.applyClaim",
		find: "_1._2._3, _1._4 = Duplicate,", put: "_1._4 =",
		test: "TestRepetitionIsAnsweredWhatTheFirstWas",
	},
	{
		rule: "the first stored answer of a key stays", in: "store/sqlite",
		find: "AND id = ?2 AND status IS NULL", put: "AND id = ?2",
		test: "TestLedgerConformance/concurrent_calls_with_one_key",
	},
	{
		rule: "an id with other content passes the gate", in: "ingest/gate", fn: "Memory.Seen",
		find: "_1._2 == _3[_4]._5 && ", put: "",
		test: "TestMemoryConformance",
	},
	{
		rule: "a later mark of an id replaces the earlier one", in: "ingest/gate", fn: "Memory.Mark",
		find: "_1._2, _1._3 = _4[_5]._6, _7._8(_9._10)", put: "_1._3 = _7._8(_9._10)",
		test: "TestMemoryConformance",
	},
	{
		rule: "a mark ends at its time", in: "ingest/gate", fn: "Memory.Seen",
		find: " && _1._2(_3._4)\n", put: " && (true || _1._2(_3._4))\n",
		test: "TestMemoryForgetsAtItsTime",
	},
	{
		rule: "marks are of one inbox", in: "ingest", fn: "Stage.filterSeen",
		find: `_1._2.InboxID() + "/"`, put: `"inbox/"`,
		test: "TestMarksAreOfAnInbox",
	},
	{
		rule: "a file sink skips keys that it has", in: "sinks/file", fn: "Sink.Write",
		find: "if _1[_2] || _3._4._5(_2) {", put: "if _1[_2] {",
		test: "TestConformance",
	},
	{
		rule: "a file sink answers when its lines are durable", in: "sinks/file", fn: "Sink.append",
		find: "\t\t_1 = _2._3._4()", put: "\t\t_ = _2._3",
		test: "TestFailedSync",
	},
	{
		rule: "what a failed write left is cut off before the next", in: "sinks/file", fn: "Sink.append",
		find: "return _1._2(_3, _4._5())", put: "return _3",
		test: "TestFullDisk",
	},
	{
		rule: "nothing of an entity is sent behind a failure", in: "sinks/internal/fanout", fn: "round.run",
		find: "_1._2(_3[_4+1:], _5)\n\t\t\treturn", put: "_1._2(nil, _5)",
		test: "TestAnEntityEndsAtAFailure",
	},
	{
		rule: "a failure of the target ends all entities", in: "sinks/internal/fanout", fn: "round.run",
		find: "if _1 && _2._1 == nil {", put: "if _1 && false {",
		test: "TestAHaltEndsAllEntities",
	},
	{
		rule: "what was not sent is not ambiguous", in: "sinks/internal/fanout", fn: "round.skip",
		find: "_1._2 = false", put: "_ = _1._2",
		test: "TestAnEntityEndsAtAFailure",
	},
	{
		rule: "a predecessor is fenced in every partition", in: "sinks/kafka/fenced", fn: "Client.Fence",
		find: "_1 = _2._3(_4, _5, _6)", put: "_ = _5",
		test: "TestAPredecessorIsFenced",
	},
	{
		rule: "a refusal clears no doubt of an attempt before", in: "sinks/kafka/fenced", fn: "Client.await",
		find: "_1 = _1 || !_2._3", put: "_1 = !_2._3",
		test: "TestARefusalClearsNoDoubt",
	},
	{
		rule: "a writer is fenced anew before its identity is forgotten", in: "sinks/kafka", fn: "Sink.resumeForWrite",
		find: "_1._2(_3._4) > _5._6 {", put: "false {",
		test: "TestAWriterHasALifetime",
	},
	{
		rule: "the same version writes nothing", in: "sinks/postgres", fn: "table.insertStatement",
		find: `" WHERE excluded.version > t.version"`, put: `" WHERE excluded.version >= t.version"`,
		test: "TestTheSameVersionWritesNothing",
	},
	{
		rule: "what stands in the topic is left out", in: "sinks/kafka", fn: "Sink.buildStreams",
		find: "if _1._2(_3) {", put: "if false && _1._2(_3) {",
		test: "TestWhatAPredecessorWroteIsLeftOut",
	},
	{
		rule: "what had no answer is found out by fencing and reading", in: "sinks/kafka", fn: "Sink.handleAnswer",
		find: "_1._2._3 = nil\n\t\t_1._4(", put: "_1._4(",
		test: "TestTwoThatFenceEachOtherWriteOnce",
	},
	{
		rule: "a refused batch leaves no hole in the numbers", in: "sinks/kafka", fn: "Sink.handleAnswer",
		find: "_1._2._3._4(_1._5)", put: "_ = _1._5",
		test: "TestOneLargeRecordIsRefusedAlone",
	},
	{
		rule: "the mark does not pass what was found and not passed", in: "sinks/kafka", fn: "Sink.advanceMarks",
		find: " || _1._2 > _1._3 {", put: " {",
		test: "TestWhatWasFoundIsFoundAgain",
	},
	{
		rule: "what is sent once more has a position of its own", in: "sinks/kafka", fn: "Sink.record",
		find: "if _1._2 != 0 {", put: "if false {",
		test: "TestWhatIsSentOnceMoreIsThereOnceMore",
	},
	{
		rule: "a topic that was made again is read from its beginning", in: "sinks/kafka", fn: "Sink.readLeft",
		find: "case _1._2 != _2._3 || _4 >= len(_1._5):", put: "case _4 >= len(_1._5):",
		test: "TestATopicThatWasMadeAgain",
	},
	{
		rule: "no two activations share a number, also where the store lost one", in: "pipeline", fn: "journal.noteActivation",
		find: "max(_1._2, _3._4, _3._5) + 1", put: "max(_3._4, _3._5) + 1",
		test: "TestAwaitingTheOwnRevision",
	},
	{
		rule: "services have the numbers of the store that was put back", in: "pipeline", fn: "activation.await",
		find: "if _1 = _2._3(_4, _5); _1 == nil {", put: "if _1 == nil {",
		test: "TestAwaitingTakesTheNumbersOfTheStore",
	},
	{
		rule: "an activation without an answer is asked for again", in: "pipeline", fn: "activation.trySwitch",
		find: "for _1 != nil && !", put: "for false && _1 != nil && !",
		test: "TestAReloadWhoseActivationIsNotAnswered",
	},
	{
		rule: "an owner of a former session of the server decides nothing", in: "store/postgres",
		find: "AND w.session = pg_postmaster_start_time() RETURNING 1", put: "RETURNING 1",
		test: "TestServerKilled",
	},
	{
		rule: "an activation is in the journal before its commit", in: "pipeline", fn: "journal.noteActivation",
		find: "return _1, _2._3(_4, journalEntry{_5: _1._5, _6: _7})", put: "return _1, nil",
		test: "TestAnActivationIsNotedBeforeItsCommit",
	},
	{
		rule: "a generation is in the journal", in: "pipeline", fn: "journal.noteGeneration",
		find: "_1 = _2._3(_4, journalEntry{_5: _6._5})", put: "_1 = nil",
		test: "TestWhatTheStoreLostBeginsAGeneration",
	},
	{
		rule: "… also one that begins with an activation", in: "pipeline", fn: "journal.noteActivation",
		find: "_1 := _2._3(_4, journalEntry{_5: _6._5}); _1 != nil", put: "_1 := error(nil); _1 != nil",
		test: "TestAnActivationInDoubt",
	},
	{
		rule: "what the journal has and the store does not was lost", in: "pipeline", fn: "journal.knownTo",
		find: "return _1 > _2._3 &&", put: "return false && _1 > _2._3 &&",
		test: "TestWhatTheStoreLostBeginsAGeneration",
	},
	{
		rule: "… a generation, too", in: "pipeline", fn: "journal.knownTo",
		find: "_1._2 <= _3._4 &&", put: "true &&",
		test: "TestWhatTheStoreLostBeginsAGeneration",
	},
	{
		rule: "another journal knows nothing of what was lost", in: "pipeline", fn: "journal.knownTo",
		find: "_1._2 == _3._4 &&", put: "true &&",
		test: "TestAJournalThatWasMadeAgainBeginsAGeneration",
	},
	{
		rule: "the journal is read after each takeover", in: "decide", fn: "worker.takeOver",
		find: "_1 == nil && _2._3._4._5 != nil {", put: "_1 == nil && false {",
		test: "./pipeline TestTheJournalIsReadAfterTheTakeover",
	},
	{
		rule: "a tombstone stays until everybody has heard of it", in: "pipeline", fn: "retainer.heard",
		find: "_1 = min(_1, _2._3(_4._5, _4._6, _7._8))", put: "_, _ = _2, _7",
		test: "TestTombstonesWaitForTheirServices",
	},
	{
		rule: "an activation in doubt begins a generation", in: "pipeline", fn: "journal.noteActivation",
		find: "if _1._2 {", put: "if false {",
		test: "TestAnActivationInDoubt",
	},
	{
		rule: "doubt ends where the inbox ended", in: "pipeline", fn: "inboxManager.takenOver",
		find: "_1[_2._3] = _4", put: "_1[_2._3], _ = 0, _4",
		test: "TestDoubtEndsAtTheEndOfTheInbox",
	},
	{
		rule: "what a store says of doubt holds in its session", in: "store/shared",
		find: `w.session <> '" + FileSession + "' OR w.doubt > w.next_offset`, put: "w.doubt > w.next_offset",
		test: "./store/sqlite TestDoubt",
	},
	{
		rule: "a generation begins with a row, by which older ones are over", in: "store/shared",
		find: "WHERE NOT EXISTS (SELECT 1 FROM watermarks WHERE generation = ?1)", put: "WHERE ?1 < 0",
		test: "./store/sqlite TestDoubt",
	},
	{
		rule: "… also at a takeover", in: "store/sqlite",
		find: "WHEN t.session = excluded.session THEN t.doubt ELSE ?4 END", put: "WHEN 1 THEN t.doubt ELSE ?4 END",
		test: "TestDoubt",
	},
	{
		rule: "a void number never takes effect", in: "store/shared", fn: "noteOf",
		find: "case _1._2 > 0 && _1._2 <= max(_3._4, _3._5),", put: "case _1._2 > 0 && _1._2 <= _3._4,",
		test: "./store/sqlite TestDoubt",
	},
	{
		rule: "only the owner ends the doubt of a partition", in: "store/shared",
		find: "AND token = ?4 AND session", put: "AND length(?4) > 0 AND session",
		test: "./store/sqlite TestDoubt",
	},
	{
		rule: "the inbox is opened again under a reloaded configuration", in: "pipeline", fn: "workStage.adopt",
		find: "_1._2._3(_4, nil)", put: "_ = _1._2",
		test: "TestAReloadInDoubt",
	},
	{
		rule: "the generation of another inbox that the store knows is not overtaken", in: "store/shared",
		find: `SQLite: "SELECT 0, generation, journal, void FROM (SELECT generation, journal, void FROM inboxes ORDER BY generation DESC LIMIT 1)`,
		put:  `SQLite: "SELECT 0, generation, journal, void FROM (SELECT generation, journal, void FROM inboxes ORDER BY generation LIMIT 1)`,
		test: "./pipeline TestTheGenerationOfAnotherTopicIsNotOvertaken",
	},
	{
		rule: "what ended a stage is not hidden by its group or its router", in: "pipeline", fn: "causes",
		find: "_1 = _2._3(_1, <-_4)", put: "<-_4",
		test: "TestAllThatEndedAStageIsNamed",
	},
	{
		rule: "imports are worked on under the active configuration", in: "operate/imports", fn: "Desk.Ingest",
		find: "if _1 := _2.Ready(_3); _1 != nil {", put: "if _1 := _2.Ready(_3); false {",
		test: "TestAnotherConfigurationIsActive",
	},
	{
		rule: "a file is known by its start, wherever reading stands", in: "sources/file", fn: "Source.identify",
		find: "_1._2(_3, 0, _4._5)", put: "_1.LimitReader(_3, _4._5)",
		test: "TestFileWaitsForTheStore",
	},
	{
		rule: "a file that was written anew is read from its start, however large it is", in: "sources/file", fn: "Source.resume",
		find: `_1._2 == "" && _3`, put: "_3",
		test: "TestFileThatShrankBeforeItsPositionWasStored",
	},
	{
		rule: "a reference with another value is a change of its file", in: "config", fn: "Cache.find",
		find: "_1 != nil || now != value", put: "_1 != nil || false && now != value",
		test: "TestUnchangedFilesAreReused",
	},
	{
		rule: "the checks depend on the values of the main file's references", in: "config", fn: "Cache.begin",
		find: "!maps.Equal(main.references, c.main.references)", put: "!maps.Equal(main.references, main.references)",
		test: "TestUnchangedFilesAreReused",
	},
	{
		rule: "a service is its first name", in: "config", fn: "Config.Services",
		find: "cmp.Or(_1.Was, _2.first()+", put: "cmp.Or(\"\", _2.first()+",
		test: "TestARenameKeepsTheIdentity",
	},
	{
		rule: "a first name is that of one service", in: "config", fn: "names.apart",
		find: "case _1.Name != _1.Current &&", put: "case false &&",
		test: "TestRenamesThatAreRefused",
	},
	{
		rule: "a first name is known to the store", in: "config", fn: "Config.CheckRenames",
		find: "len(faults.List) == 0", put: "true",
		test: "TestFirstNamesThatTheStoreDoesNotKnow",
	},
	{
		rule: "a slot ahead of the mark is a gap", in: "sources/postgres", fn: "mark.gap",
		find: "case _1._2 > _3._4:", put: "case false:",
		test: "TestTimelines",
	},
	{
		rule: "a dropped column has the rows read again", in: "sources/postgres", fn: "columnNames.breaks",
		find: "; !_1 {", put: "; !_1 && false {",
		test: "TestWhatBreaksDocuments",
	},
	{
		rule: "a column with the name of another has the rows read again", in: "sources/postgres", fn: "columnNames.breaks",
		find: "; _1 && _2 != _3 {", put: "; _1 && _2 != _3 && false {",
		test: "TestWhatBreaksDocuments",
	},
	{
		rule: "a renamed label of an enum has the rows read again", in: "sources/postgres", fn: "identity.differs",
		find: "if is.Values[_1] != _2 {", put: "if false && is.Values[_1] != _2 {",
		test: "TestWhatBreaksDocuments",
	},
	{
		rule: "rows that were read of lost commits are a gap", in: "sources/postgres", fn: "mark.gap",
		find: "max(_1._2, _1._3)", put: "_1._2",
		test: "TestTimelines",
	},
	{
		rule: "after a gap, stored entities without a row are deleted", in: "sources/postgres", fn: "table.readRows",
		find: "if _1.Again {", put: "if false {",
		test: "TestLostSlots",
	},
	{
		rule: "the last transaction must come again", in: "sources/postgres", fn: "decoder.passed",
		find: "_1._2._3 != 0 && ", put: "false && _1._2._3 != 0 && ",
		test: "TestStreamWithoutTheLastTransaction",
	},
	{
		rule: "the deletions of a TRUNCATE share a place", in: "sources/postgres", fn: "decoder.truncate",
		find: "_1._2._3(_4, _5._6, _7._8(_9, nil), _7._10)", put: "_1.emitNext(_4, _5, _9, nil, nil)",
		test: "TestTruncate",
	},
	{
		rule: "rows have the place before the position of their snapshot", in: "sources/postgres", fn: "session.piece",
		find: "lsn: _1 - 1,", put: "lsn: _1 + 1<<20,",
		test: "TestRowsThenChanges",
	},
	{
		rule: "an attempt at a target that is down moves the time of the next as it begins (BOTH_PROBE)", in: "sinks", fn: "member.Try",
		find: "_1.postpone()", put: "_ = _1",
		test: "TestOneAttemptInAPeriod",
	},
	{
		rule: "any service tries when it is due (HOLDER, FIRST_ONLY)", in: "sinks", fn: "target.refusal",
		find: "|| !_1.Now().Before(_2.due)", put: "",
		test: "TestAnyServiceTriesWhenItIsDue",
	},
}
