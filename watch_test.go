package eirinix

// This file specifies how events reach watchers.

import (
	. "github.com/onsi/ginkgo/v2/dsl/core"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var _ = Describe("Watchers", func() {
	It("go on after one that panics", func() {
		m := NewManager(ManagerOptions{})
		var heard []string
		m.AddWatcher(watcherFunc(func(watch.Event) { panic("oops") }))
		m.AddWatcher(watcherFunc(func(e watch.Event) { heard = append(heard, string(e.Type)) }))
		m.deliver(watch.Event{Type: watch.Added, Object: &corev1.Pod{}})
		Expect(heard).To(Equal([]string{"ADDED"}))
	})
})

type watcherFunc func(watch.Event)

func (f watcherFunc) Handle(_ Manager, e watch.Event) { f(e) }
