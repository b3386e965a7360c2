package controller_test

// This file runs the specs.

import (
	"testing"
	"testing/synctest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// suite is for bubbles, which Ginkgo does not know.
var suite *testing.T

func TestController(t *testing.T) {
	suite = t
	RegisterFailHandler(Fail)
	RunSpecs(t, "internal/controller")
}

// bubble runs f where real pauses, as those of certsecret.Store between two tries, take no time. A model's own time is
// another one, which its world decides. f must not fail a spec: it returns the result to check.
func bubble[T any](f func() T) (result T) {
	synctest.Test(suite, func(*testing.T) { result = f() })
	return result
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
