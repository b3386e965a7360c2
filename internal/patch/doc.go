// Package patch turns a handler's changes to a decoded object into a JSON patch that touches nothing else.
//
// The object arrives as JSON and can hold members that our Go types do not know. So the patch is not the difference
// between that JSON and the re-encoded object. It is the difference between two typed trees, the decoded one and the
// one that the handler left behind, rebased on the JSON. Values on which both trees agree are never mentioned,
// whatever their spelling in the JSON. Members that only the JSON has stay in place, and move with their list item.
//
// The files, in the order in which a call passes through them:
//
//	patch.go     Diff, its options and errors
//	plan.go      the treatment of a Go type by encoding/json, worked out once per type
//	fields.go    the same for the fields of a struct
//	diff.go      the walk through both trees
//	maps.go      members of maps and of values that marshal themselves
//	frame.go     the position of the walk in the JSON, and the operations emitted there
//	list.go      operations on a list whose items are paired
//	align.go     the pairing of the items of a list
//	keys.go      the same by merge keys
//	rawindex.go  presence and position of members in the JSON, without decoding it
//	equal.go     equality of two values, which means that they marshal to the same JSON
//	same.go      the same for types that have a cheaper test
//	encode.go    values as encoding/json writes them
//	text.go      strings and foreign JSON as encoding/json writes them
//	operation.go the emitted operations
//	wire.go      operations as encoding/json writes them
//	apply.go     the JSON that results from a patch
//	lazy.go      JSON that is parsed only as far as a patch reaches
//
// All functions are safe for concurrent use. They only read their arguments, and keep none of them.
package patch
