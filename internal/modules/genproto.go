//go:build modules

// Package modules requires the modules that a program needs but that no package here imports.
package modules

// This import keeps google.golang.org/genproto in go.mod, at a version from after its split into modules. If a
// program's other requirements name an older version, packages of those modules would be found twice, and the program
// would not build.
import _ "google.golang.org/genproto/protobuf/field_mask"
