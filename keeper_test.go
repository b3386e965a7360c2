package eirinix

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/gomega"
)

var _ = Describe("A look at Secret and configurations", func() {
	It("waits for one that is taken no longer than its context lasts", func() {
		k := &keeper{looking: make(chan struct{}, 1)}
		k.looking <- struct{}{}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(enough)
		_, err := k.tick(ctx)
		Expect(err).To(MatchError(enough))
	})
})
