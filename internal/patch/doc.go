// Package patch turns what a handler did to a decoded object into a JSON patch that touches nothing else.
//
// The object arrives as JSON and may hold members that our Go types have never heard of. So the patch is
// not the difference between that JSON and the re-encoded object: it is the difference between two typed
// trees, the one that was decoded and the one that the handler left behind, rebased on the JSON. What both
// trees agree on is never mentioned, whatever its spelling in the JSON; what only the JSON knows stays where
// it is and travels with its list item.
//
// The rooms, in the order in which a call passes through them:
//
//	patch.go     Diff, its options and errors
//	plan.go      what encoding/json would do with a Go type, worked out once per type
//	fields.go    the same for the fields of a struct
//	diff.go      the walk through both trees
//	maps.go      members of maps and of values that marshal themselves
//	frame.go     where the walk stands in the JSON, and the operations it emits there
//	list.go      operations on a list whose items are paired
//	align.go     which item of a list has become which
//	keys.go      the same by merge keys
//	rawindex.go  presence and place of members in the JSON, without decoding it
//	equal.go     equality of two values, meaning: they marshal to the same JSON
//	same.go      the same for types that marshal themselves, where there is a cheaper way to know
//	encode.go    values as encoding/json writes them
//	text.go      strings and foreign JSON as encoding/json writes them
//	operation.go the operations that were emitted
//	wire.go      operations as encoding/json writes them
//	apply.go     the JSON that a patch leads to
//	lazy.go      JSON that is read as far as a patch reaches
//
// All functions are safe for concurrent use. They read their arguments and keep none of them.
package patch
