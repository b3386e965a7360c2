//go:build !linux

package main

import "errors"

func allowedCPUs() []int { return nil }

func pin(...int) error { return errors.New("only done on Linux") }
