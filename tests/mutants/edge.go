package main

// The ends: ingest, its gate, and the sinks; and the configuration in force.
var edgeMutants = []mutant{
	{
		rule: "the mark comes after the append", file: "ingest/stage.go",
		old: `if err := s.retry(stop, "append to the inbox"`, new: "_ = s.opt.Gate.Mark(work, marks)\n\t" + `if err := s.retry(stop, "append to the inbox"`,
		in: "./ingest", test: "TestMarkComesAfterTheAppend",
	},
	{
		rule: "a gate that is away lets everything through", file: "ingest/stage.go",
		old: "s.m.unchecked.Add(float64(len(ask)))\n\t\treturn events", new: "s.m.unchecked.Add(float64(len(ask)))\n\t\treturn nil",
		in: "./ingest", test: "TestGateDownLetsThroughAndCounts",
	},
	{
		rule: "an id with other content in one frame is another event", file: "ingest/stage.go",
		old: "known = last == x.gate.Hash", new: "known = true || last == x.gate.Hash",
		in: "./ingest", test: "TestRepetitionInOneFrame",
	},
	{
		rule: "no append begins after the partition is somebody else's", file: "ingest/stage.go",
		old: "if stop.Err() != nil {\n\t\treturn context.Cause(stop)\n\t}\n\tctx, cancel", new: "ctx, cancel",
		in: "./ingest", test: "TestAFrameWhoseMessageHasEnded",
	},
	{
		rule: "an event that cannot be taken in is a letter before its frame is done", file: "ingest/stage.go",
		old: "return s.opt.Letters.AddLetters(work, letters) }); err != nil {", new: "return s.opt.Letters.AddLetters(work, letters) }); false {",
		in: "./ingest", test: "TestLettersThatCannotBeStoredHoldUpTheirFrame",
	},
	{
		rule: "an event under a claim does not ask the gate", file: "ingest/prepared.go",
		old: `p.x.gate.EventID = ""`, new: "_ = p.x.gate",
		in: "./ingest", test: "TestStageTakesThePreparedEvent",
	},
	{
		rule: "an id with other content passes the gate", file: "ingest/gate/memory.go",
		old: "mk.hash == entries[i].Hash && ", new: "",
		in: "./ingest/gate", test: "TestMemoryConformance",
	},
	{
		rule: "a later mark of an id replaces the earlier one", file: "ingest/gate/memory.go",
		old: "mk.hash, mk.expires = entries[i].Hash, now.Add(m.ttl)", new: "mk.expires = now.Add(m.ttl)",
		in: "./ingest/gate", test: "TestMemoryConformance",
	},
	{
		rule: "a mark ends at its time", file: "ingest/gate/memory.go",
		old: " && now.Before(mk.expires)\n", new: " && (true || now.Before(mk.expires))\n",
		in: "./ingest/gate", test: "TestMemoryForgetsAtItsTime",
	},
	{
		rule: "marks are of one inbox", file: "ingest/stage.go",
		old: `s.opt.InboxID() + "/"`, new: `"inbox/"`,
		in: "./ingest", test: "TestMarksAreOfAnInbox",
	},
	{
		rule: "a file sink skips keys that it has", file: "sinks/file/file.go",
		old: "if inBatch[k] || s.keys.has(k) {", new: "if inBatch[k] {",
		in: "./sinks/file", test: "TestConformance",
	},
	{
		rule: "a file sink answers when its lines are durable", file: "sinks/file/file.go",
		old: "\t\terr = s.f.Sync()", new: "\t\t_ = s.f",
		in: "./sinks/file", test: "TestFailedSync",
	},
	{
		rule: "what a failed write left is cut off before the next", file: "sinks/file/file.go",
		old: "return errors.Join(err, s.takeBack())", new: "return err",
		in: "./sinks/file", test: "TestFullDisk",
	},
	{
		rule: "nothing of an entity is sent behind a failure", file: "sinks/internal/fanout/fanout.go",
		old: "r.skip(queue[n+1:], err)\n\t\t\treturn", new: "r.skip(nil, err)",
		in: "./sinks/internal/fanout", test: "TestAnEntityEndsAtAFailure",
	},
	{
		rule: "a failure of the target ends all entities", file: "sinks/internal/fanout/fanout.go",
		old: "if halt && r.halt == nil {", new: "if halt && false {",
		in: "./sinks/internal/fanout", test: "TestAHaltEndsAllEntities",
	},
	{
		rule: "what was not sent is not ambiguous", file: "sinks/internal/fanout/fanout.go",
		old: "e.Ambiguous = false", new: "_ = e.Ambiguous",
		in: "./sinks/internal/fanout", test: "TestAnEntityEndsAtAFailure",
	},
	{
		rule: "a predecessor is fenced in every partition", file: "sinks/kafka/fenced/fence.go",
		old: "err = c.touch(ctx, w, t)", new: "_ = w",
		in: "./sinks/kafka/fenced", test: "TestAPredecessorIsFenced",
	},
	{
		rule: "what stands in the topic is left out", file: "sinks/kafka/kafka.go",
		old: "if p.contains(c) {", new: "if false && p.contains(c) {",
		in: "./sinks/kafka", test: "TestWhatAPredecessorWroteIsLeftOut",
	},
	{
		rule: "what had no answer is found out by fencing and reading", file: "sinks/kafka/kafka.go",
		old: "st.part.writer = nil\n\t\tst.fail(", new: "st.fail(",
		in: "./sinks/kafka", test: "TestTwoThatFenceEachOtherWriteOnce",
	},
	{
		rule: "a refused batch leaves no hole in the numbers", file: "sinks/kafka/kafka.go",
		old: "st.part.writer.Unsend(st.batch)", new: "_ = st.batch",
		in: "./sinks/kafka", test: "TestOneLargeRecordIsRefusedAlone",
	},
	{
		rule: "the mark does not pass what was found and not passed", file: "sinks/kafka/resume.go",
		old: " || p.tried > p.reach {", new: " {",
		in: "./sinks/kafka", test: "TestWhatWasFoundIsFoundAgain",
	},
	{
		rule: "what is sent once more has a position of its own", file: "sinks/kafka/kafka.go",
		old: "if c.Resent != 0 {", new: "if false {",
		in: "./sinks/kafka", test: "TestWhatIsSentOnceMoreIsThereOnceMore",
	},
	{
		rule: "a topic that was made again is read from its beginning", file: "sinks/kafka/resume.go",
		old: "case m.topic != topic.ID || p >= len(m.ends):", new: "case p >= len(m.ends):",
		in: "./sinks/kafka", test: "TestATopicThatWasMadeAgain",
	},
	{
		rule: "no two activations share a number, also where the store forgot one", file: "pipeline/activation.go",
		old: "a.store.Activate(ctx, identity, a.newest.Load(), rollBack)", new: "a.store.Activate(ctx, identity, 0, rollBack)",
		in: "./pipeline", test: "TestAwaitingTheOwnRevision",
	},
	{
		rule: "services have the numbers of the store that was put back", file: "pipeline/activation.go",
		old: "if err = a.renumber(ctx, now); err == nil {", new: "if err == nil {",
		in: "./pipeline", test: "TestAwaitingTakesTheNumbersOfTheStore",
	},
	{
		rule: "an activation without an answer is asked for again", file: "pipeline/activation.go",
		old: "for err != nil && (", new: "for err != nil && false && (",
		in: "./pipeline", test: "TestAReloadWhoseActivationIsNotAnswered",
	},
	{
		rule: "what is decided again is noted until it is", file: "store/sqlite/configurations.go",
		old: "WHERE excluded.decided_to > forgotten.decided_to`", new: "`",
		in: "./store/sqlite", test: "TestConformance",
	},
	{
		rule: "a tombstone stays until everybody has heard of it", file: "pipeline/housekeep.go",
		old: "below = min(below, reached.Position(partition, s.Number).Version)", new: "_, _ = partition, s",
		in: "./pipeline", test: "TestTombstonesWaitForTheirServices",
	},
	{
		rule: "what was noted as forgotten counts, not only what the log ends with", file: "pipeline/generation.go",
		old: "g.forgotten = noted", new: "g.forgotten, _ = decided, noted",
		in: "./pipeline", test: "TestAnotherConfigurationInTheMiddleOfWhatIsDecidedAgain",
	},
	{
		rule: "a store that is put back once more has lost its note", file: "pipeline/generation.go",
		old: "decided := g.forgotten", new: "var decided []store.Forgotten",
		in: "./pipeline", test: "TestAnotherConfigurationInTheMiddleOfWhatIsDecidedAgain",
	},
	{
		rule: "the inbox is opened again under a reloaded configuration", file: "pipeline/decide.go",
		old: "} else if next != now {", new: "} else if false {",
		in: "./pipeline", test: "TestAReloadInTheMiddleOfWhatIsDecidedAgain",
	},
	{
		rule: "a generation that the store forgot is not given again", file: "pipeline/generation.go",
		old: "f.To.Generation() > newest {", new: "false {",
		in: "./pipeline", test: "TestAStorePutBackToBeforeAGeneration",
	},
	{
		rule: "a generation of another inbox that the store knows is not overtaken", file: "pipeline/generation.go",
		old: "f.To.Generation() > newest {", new: "f.To.Generation() > inbox.Generation {",
		in: "./pipeline", test: "TestTheGenerationOfAnotherTopicIsNotOvertaken",
	},
	{
		rule: "what ended a stage is not hidden by its group or its router", file: "pipeline/router.go",
		old: "err = errors.Join(err, e)", new: "_ = e",
		in: "./pipeline", test: "TestAllThatEndedAStageIsNamed",
	},
	{
		rule: "imports are worked on under the active configuration", file: "imports/worker.go",
		old: "if err := r.Active(ctx); err != nil {", new: "if err := r.Active(ctx); false {",
		in: "./imports", test: "TestAnotherConfigurationIsActive",
	},
	{
		rule: "a file is known by its start, wherever reading stands", file: "sources/file/file.go",
		old: "io.NewSectionReader(file, 0, math.MaxInt64)", new: "io.LimitReader(file, math.MaxInt64)",
		in: "./sources/file", test: "TestFileWaitsForTheStore",
	},
	{
		rule: "a file that was written anew is read from its start, however large it is", file: "sources/file/file.go",
		old: `file.previous == "" && grown`, new: "grown",
		in: "./sources/file", test: "TestFileThatShrankIsReadFromItsStartHoweverItGrew",
	},
}
