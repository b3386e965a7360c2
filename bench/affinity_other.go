//go:build !linux

package main

// This file replaces affinity_linux.go on systems on which the process cannot be pinned.

import "errors"

func allowedCPUs() []int { return nil }

func pin(...int) error { return errors.New("only done on Linux") }
