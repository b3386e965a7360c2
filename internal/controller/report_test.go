package controller_test

// This file is about the log lines of the loop.

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
	"code.cloudfoundry.org/eirinix/internal/controller"
)

// unreadable is a cache that counts the reads, which all fail.
type unreadable struct{ reads atomic.Int32 }

func (u *unreadable) Get(context.Context, client.Object) error {
	u.reads.Add(1)
	return errors.New("no connection")
}

func (*unreadable) Wrote(client.Object) {}

func (*unreadable) Polls(client.Object) bool { return false }

var _ = Describe("A loop whose passes fail", func() {
	DescribeTable("logs the failure at once, and then once a minute", func(d time.Duration, fewest int, lines types.GomegaMatcher) {
		s, cache := newSolo(), &unreadable{}
		var logged []string
		log := funcr.New(func(_, line string) {
			if strings.Contains(line, "could not reconcile") {
				logged = append(logged, line)
			}
		}, funcr.Options{})
		bubble(func() error {
			ctx, cancel := context.WithTimeout(context.Background(), d)
			defer cancel()
			loop := controller.New(s.config(func(c *controller.Config) {
				c.Cache, c.Log = cache, log
				c.Report = controller.NewReport(ctx, namespace, secretName, prometheus.NewRegistry(), nil, logr.Discard())
			}))
			loop.Run(ctx, must(cluster.NewObjects(&rest.Config{}, logr.Discard())))
			return nil
		})
		Expect(cache.reads.Load()).To(BeNumerically(">=", fewest), "the passes go on")
		Expect(len(logged)).To(lines)
		Expect(logged).To(HaveEach(ContainSubstring("no connection")))
	},
		Entry("in half a minute", 30*time.Second, 4, Equal(1)),
		Entry("in ten minutes", 10*time.Minute, 20, And(BeNumerically(">", 5), BeNumerically("<", 11))),
	)
})
