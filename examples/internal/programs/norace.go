//go:build !race

package programs

var buildFlags []string
