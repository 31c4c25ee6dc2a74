// Package stripper removes the members of a document that no projection needs, so
// that a change of them alone is no change.
//
// # Model
//
// A pattern is a path of parts that are joined by dots; it says which members
// to remove, with all that is inside them:
//
//	updated_at        the member of that name at the root
//	meta.lsn          the member of a member
//	items.0.seen_at   a number is an index of an array, or a member of that name
//	items.*.seen_at   a star is any one member or element
//	**.trace_id       two stars are any number of steps, also none
//	a\.b  \*  \\      a backslash makes the next character part of a name
//	years.\2024       a number that is escaped is a name and never an index
//
// [Compile] joins all patterns into one automaton, so a document is walked once
// for any number of them; the work per value is bounded by the number of parts
// in all patterns together, also with several "**". Parts of a document that no
// pattern can reach are not looked into.
//
// Only members are removed. To remove an element would move its neighbours, and every later path
// with them, so a pattern that ends in an index is refused, and one that ends in a star removes
// all members of an object and leaves arrays as they are. An object that loses its last member
// stays, empty. The root value itself is never removed.
//
// [Rules.Strip] makes a tree of the rest, without parsing again.
//
// Values of [Rules] are immutable: any number of goroutines may use one.
package stripper
