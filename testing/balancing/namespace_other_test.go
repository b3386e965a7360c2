//go:build !linux

package balancing_test

// This file stands in for network namespaces on systems that have none.

import "errors"

var errNotLinux = errors.New("only Linux has network namespaces")

func runInNamespace() (code int, isOutside bool, err error) { return 0, true, errNotLinux }

func setUpNetwork() error { return errNotLinux }
