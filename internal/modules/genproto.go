//go:build modules

// Package modules says which modules a program needs that nothing here imports.
package modules

// The one package that is imported here keeps google.golang.org/genproto in go.mod, at a version from after its split into
// modules. In a program whose other requirements name an older one, packages of those modules would be found twice, and
// the program would not build.
import _ "google.golang.org/genproto/protobuf/field_mask"
