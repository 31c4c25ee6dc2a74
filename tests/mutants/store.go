package main

// What stands between SQLite and a disk that lies.
var diskMutants = []mutant{
	{
		rule: "a page is compared with its checksum", file: "store/sqlite/disk/checksum.go",
		old: "if sealOf(b) != checksum(b, number) && !moved(b) {", new: "if false {",
		in: "./store/sqlite", test: "TestFlippedBits",
	},
	{
		rule: "the checksum of a page has its number", file: "store/sqlite/disk/checksum.go",
		old: "binary.BigEndian.PutUint64(n[:], uint64(number))", new: "binary.BigEndian.PutUint64(n[:], uint64(0*number))",
		in: "./store/sqlite", test: "TestMisplacedAndZeroedPages/misplaced",
	},
	{
		rule: "a file of another program is sealed when all of it was written anew", file: "store/sqlite/disk/checksum.go",
		old: "if !s.sealed && !f.d.sealing.Load() {", new: "if false {",
		in: "./store/sqlite", test: "TestFilesOfOtherPrograms",
	},
	{
		rule: "a page of the write-ahead log is compared when it is read", file: "store/sqlite/disk/wal.go",
		old: "!short && f.sound(tls, number, b) {", new: "!short {",
		in: "./store/sqlite", test: "TestFlippedBitInTheLogOfARunningProcess",
	},
	{
		rule: "a write-ahead log does not end in the middle", file: "store/sqlite/disk/wal.go",
		old: "return ends > 1", new: "return false",
		in: "./store/sqlite", test: "TestFlippedBits",
	},
	{
		rule: "nothing is written after an fsync that failed", file: "store/sqlite/disk/file.go",
		old: `f.d.Fail(fmt.Errorf("%w: %s", ErrSync, f.name))`, new: `_ = fmt.Errorf("%w", ErrSync)`,
		in: "./store/sqlite", test: "TestFailedSyncEndsAllWriting",
	},
	{
		rule: "a commit is synced before it is acknowledged", file: "store/sqlite/open.go",
		old: `"synchronous(FULL)"`, new: `"synchronous(OFF)"`,
		in: "./store/sqlite", test: "TestPowerLoss",
	},
	{
		rule: "a state file that was exchanged is a backup", file: "transport/embedded/note.go",
		old: "if noted.File != inode {", new: "if noted.File != inode && false {",
		in: "./transport/embedded", test: "TestDetectRestore",
	},
	{
		rule: "a state file whose logs went back is a backup", file: "transport/embedded/note.go",
		old: "if p < len(ends) && ends[p] < end {", new: "if p < len(ends) && false && end > 0 {",
		in: "./transport/embedded", test: "TestDetectRestore",
	},
	{
		rule: "what a bit turned at the end of a sink's file is not cut off", file: "sinks/file/recover.go",
		old: "!whole && holdsValue(written):", new: "false:",
		in: "./sinks/file", test: "TestFlippedBitsAtTheEnd",
	},
}

// What the stores compare and write. PostgreSQL's need a server.
var storeMutants = []mutant{
	{
		rule: "token in the watermark row", file: "store/sqlite/decide.go",
		old: "AND next_offset = ? AND token = ?", new: "AND next_offset = ? AND (token = ? OR 1)",
		in: "./store/sqlite", test: "TestConformance/Owners",
	},
	{
		rule: "a decision begins where the one before it ended", file: "store/sqlite/decide.go",
		old: "AND next_offset = ? AND token = ?", new: "AND (next_offset = ? OR 1) AND token = ?",
		in: "./store/sqlite", test: "TestConformance/Decide",
	},
	{
		rule: "a take-over writes its token", file: "store/sqlite/decide.go",
		old: "DO UPDATE SET token = excluded.token", new: "DO UPDATE SET token = watermarks.token",
		in: "./store/sqlite", test: "TestConformance/TakeOver/a_decision_about_nothing",
	},
	{
		rule: "a take-over reads the outboxes of older generations", file: "store/sqlite/decide.go",
		old: "WHERE partition = ? AND generation <= ? ORDER", new: "WHERE partition = ? AND generation = ? ORDER",
		in: "./decide", test: "TestWhatAnOlderInboxLeftIsPublished",
	},
	{
		rule: "a take-over ends the owners of older generations", file: "store/sqlite/decide.go",
		old: "SET token = x''", new: "SET token = token",
		in: "./store/sqlite", test: "TestConformance/TakeOver",
	},
	{
		rule: "an older generation takes nothing over", file: "store/sqlite/decide.go",
		old: "if err == nil && newer {", new: "if false {",
		in: "./store/sqlite", test: "TestConformance/TakeOver",
	},
	{
		rule: "acknowledged outbox rows are deleted in the decision", file: "store/sqlite/decide.go",
		old: "if err := t.drop(d.Moves, d.Published); err != nil {", new: "if err := t.drop(d.Moves, nil); err != nil {",
		in: "./store/sqlite", test: "TestConformance/TakeOver/the_outbox",
	},
	{
		rule: "a decision is of the active revision", file: "store/sqlite/decide.go",
		old: "if active != revision {", new: "if false {",
		in: "./store/sqlite", test: "TestConformance/Decide",
	},
	{
		rule: "what is loaded stands under the owner's token and offset", file: "store/sqlite/decide.go",
		old: "if err == nil && !holds {", new: "if false {",
		in: "./store/sqlite", test: "TestConformance/Decide",
	},
	{
		rule: "claims and keys are as a decision found them", file: "store/sqlite/decide.go",
		old: "err = t.compareDecided(d, loaded)", new: "_ = t.compareDecided(d, loaded)",
		in: "./store/sqlite", test: "TestLedgerConformance",
	},
	{
		rule: "an entity is written only over what was read", file: "store/sqlite/dam.go",
		old: "AND writes = ?7`", new: "AND (writes = ?7 OR 1)`",
		in: "./store/sqlite", test: "TestConformance/States",
	},
	{
		rule: "an entity that is not as it was found fences the decision", file: "store/sqlite/dam.go",
		old: "if err == nil && n != 1 {", new: "if err == nil && n > 1 {",
		in: "./store/sqlite", test: "TestConformance/States",
	},
	{
		rule: "a page in which a state was set is written", file: "store/states.go",
		old: "s.pages[p].Body, s.changed[p] = body, true", new: "s.pages[p].Body, s.changed[p] = body, number == 0",
		in: "./store/sqlite", test: "TestConformance/States",
	},
	{
		rule: "a page in which nothing was set stays", file: "store/sqlite/dam.go",
		old: "states = coalesce(?8, states)", new: "states = coalesce(?8, x'')",
		in: "./store/sqlite", test: "TestConformance/States",
	},
	{
		rule: "what an owner remembers is not changed by who decides from it", file: "store/states.go",
		old: "if !s.changed[p] || !found {", new: "if !found {",
		in: "./store", test: "TestStatesAreAMap",
	},
	{
		rule: "the token of the row of a partition", file: "store/sqlite/progress.go",
		old: "WHERE partition = ?1 AND token = ?2", new: "WHERE partition = ?1 AND (token = ?2 OR 1)",
		in: "./store/sqlite", test: "TestConformance/Progress",
	},
	{
		rule: "no position passes the watermark", file: "store/sqlite/progress.go",
		old: "store.Top(swaps[i].Positions) <= change.Version(watermark) && ", new: "",
		in: "./store/sqlite", test: "TestConformance/Progress",
	},
	{
		rule: "the watermark is not below one under which a change was left out", file: "store/sqlite/progress.go",
		old: " && swaps[i].Floor <= change.Version(watermark)", new: "",
		in: "./store/sqlite", test: "TestConformance/Progress",
	},
	{
		rule: "positions are of the active revision", file: "store/sqlite/progress.go",
		old: "(active != revision || active == 0)", new: "false",
		in: "./store/sqlite", test: "TestConformance/Progress",
	},
	{
		rule: "whose changes are gone is found from the position on", file: "store/sqlite/progress.go",
		old: "r.Version >= from", new: "r.Version > from",
		in: "./store/sqlite", test: "TestConformance/Moved",
	},
	{
		rule: "frames above the watermark do not count", file: "store/progress.go",
		old: "to > l.Marks[partition].Watermark ||", new: "",
		in: "./store", test: "TestCounts",
	},
	{
		rule: "frames of a revision that is not active yet do not count", file: "store/progress.go",
		old: " || revision > l.Active {", new: " {",
		in: "./store", test: "TestCounts",
	},
	{
		rule: "frames from before their revision was in force do not count", file: "store/progress.go",
		old: "a.Revision <= revision && a.From > from || ", new: "",
		in: "./store", test: "TestCounts",
	},
	{
		rule: "frames of a revision that was not in force any more do not count", file: "store/progress.go",
		old: " || a.Revision > revision && a.From < to {", new: " {",
		in: "./store", test: "TestCounts",
	},
	{
		rule: "token in the watermark row (PostgreSQL)", file: "store/postgres/decide.go",
		old: "WHERE w.next_offset = m.origin AND w.token = m.token", new: "WHERE w.next_offset = m.origin",
		in: "./store/postgres", test: "TestConformance/Decide",
	},
	{
		rule: "a take-over writes its token (PostgreSQL)", file: "store/postgres/decide.go",
		old: "DO UPDATE SET token = excluded.token", new: "DO UPDATE SET token = watermarks.token",
		in: "./store/postgres", test: "TestConformance/TakeOver/a_decision_about_nothing",
	},
	{
		rule: "the token of the row of a partition (PostgreSQL)", file: "store/postgres/progress.go",
		old: "p.token = s.old AND ", new: "",
		in: "./store/postgres", test: "TestConformance/Progress",
	},
	{
		rule: "no position passes the watermark (PostgreSQL)", file: "store/postgres/progress.go",
		old: "greatest(s.top, s.floor) <= coalesce", new: "s.floor <= coalesce",
		in: "./store/postgres", test: "TestConformance/Progress",
	},
	{
		rule: "a letter that dies again is not pruned (PostgreSQL)", file: "store/postgres/letters.go",
		old: "WHERE last_at < $1 AND id = ANY", new: "WHERE id = ANY",
		in: "./store/postgres", test: "TestALetterThatDiesAgainIsNotPruned",
	},
}
