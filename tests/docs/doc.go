// Package docs holds the documentation to what the program does.
//
// Its tests read README.md, the pages below docs/ and examples/README.md:
//
//   - A block marked console is run, command by command, in a copy of the
//     examples. Lines that begin with "$ " are commands, those behind a command
//     its output: each must be there, in this order; "…" stands for anything in
//     a line. Blocks of one page share a folder. With the word fails the last
//     command must fail.
//   - A block marked console servers needs servers, and one marked console make
//     the checkout: their commands are checked for commands, flags, files and
//     targets that exist, and not run.
//   - Every `weir …` in running text must be a command with flags that
//     exist; under a heading "Not there yet" it must not.
//   - A configuration that a page shows is accepted by weir validate.
//   - A link to a file leads to one, a link to a heading to one.
//   - Every name of a test, and every metric, that a page names exists.
package docs
