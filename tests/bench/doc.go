// Command bench measures the structural hash and projections against other ways
// to the same end, in one process and one run, and prints tables in Markdown:
//
//	cd tests/bench && go run . -rounds 15
//
// The contenders take turns: in every round each has a few milliseconds
// of processor time on the same documents, and the tables show medians over the
// rounds. The ratios hold where the figures do not.
//
// It is a module of its own so that the libraries that Weir is compared with do
// not become dependencies of Weir.
package main
