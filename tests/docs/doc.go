// Package docs tests the documentation against the program.
//
// Its tests read README.md and others of the top, the pages below docs/, those of the
// kinds of sinks and sources, and examples/README.md:
//
//   - A block marked console is run, command by command, in a copy of the
//     examples. Lines that begin with "$ " are commands, those behind a command
//     its output: each must be there, in this order; "…" matches anything in
//     a line. Blocks of one page share a folder; those of a recipe of the cookbook
//     have one of their own. With the word fails the last command must fail. A
//     command that ends in " &" runs until the end; a port of this machine that a
//     page shows is replaced by a free one.
//   - With the word live the commands run against real servers, whose addresses are
//     in the environment.
//   - With the word shop they run with SHOP_URL, the URL of an empty PostgreSQL database;
//     the whole page once with each version of the server that is installed.
//   - A block marked console servers needs servers, and one marked console make
//     the checkout: their commands are checked for commands, flags, files and
//     targets that exist, and not run.
//   - Every `weir …` in running text must be a command with flags that exist.
//   - A configuration that a page shows, with its name in the first line, is written to
//     the folder and is accepted by weir validate; where a command of the page made that
//     file, both are the same.
//   - Each receiver of examples/ behaves as the page on receivers says.
//   - A link to a file leads to one, a link to a heading to one.
//   - Each kind of sink and source has a page, and its line in docs/sinks.md or
//     docs/sources.md.
//   - Every promise of docs/guarantees.md has tests in testdata/promises.txt, and every test
//     and every metric that a page names exists.
package docs
