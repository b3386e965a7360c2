//go:build !linux

package netns

// This file stands in for network namespaces on systems that have none.

import "errors"

var errNotLinux = errors.New("only Linux has network namespaces")

// Run returns the reason why there can be no namespace.
func Run(...string) (code int, isOutside bool, err error) { return 0, true, errNotLinux }

func setUp(...string) error { return errNotLinux }
