package eirinix_test

// This file specifies Watchers and Reconcilers beside an API server.

import (
	"context"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"code.cloudfoundry.org/eirinix"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

// eventLog is a Watcher that records its events, as "TYPE name".
type eventLog struct {
	mu   sync.Mutex
	seen []string
}

func (l *eventLog) Handle(_ eirinix.Manager, e watch.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen = append(l.seen, string(e.Type)+" "+e.Object.(*corev1.Pod).Name)
}

func (l *eventLog) Seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string{}, l.seen...)
}

var _ = Describe("A Watcher", Label("api-server"), func() {
	var (
		namespace string
		events    *eventLog
	)
	BeforeEach(func(ctx SpecContext) { namespace, events = newNamespace(ctx), &eventLog{} })

	It("does not keep a Manager that cannot start", func(ctx SpecContext) {
		o := urlOptions(namespace)
		o.ListenAddress = "192.0.2.1:1" // for documentation: no machine has that address
		m := addEnvManager(o)
		Expect(m.AddExtension(events)).To(Succeed())
		Eventually(startManager(ctx, m)).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring("cannot listen"))))
	}, SpecTimeout(2*patience))

	// watching runs Watch alone, until the spec ends.
	watching := func(o eirinix.ManagerOptions) (*eirinix.ExtensionManager, <-chan error) {
		m := eirinix.NewManager(o)
		Expect(m.AddExtension(events)).To(Succeed())
		done := make(chan error, 1)
		ended := make(chan struct{})
		go func() { defer close(ended); done <- m.Watch() }()
		DeferCleanup(func() { m.Stop(); Eventually(ended).WithTimeout(patience).Should(BeClosed()) })
		return m, done
	}
	// options need no Host: a program that only watches is never called.
	options := func() eirinix.ManagerOptions {
		return eirinix.ManagerOptions{Namespace: namespace, RestConfig: controlPlane().Config()}
	}
	create := func(ctx context.Context, namespace, name string, labels map[string]string) {
		GinkgoHelper()
		Must(createPod(ctx, namespace, NewPod(name, labels)))
	}
	// begun waits until the watch is under way: a pod made before would be no event.
	begun := func(ctx context.Context) {
		i := 0
		Eventually(func(g Gomega) {
			i++
			create(ctx, namespace, "probe-"+string(rune('a'+i)), map[string]string{eirinix.LabelSourceType: "APP"})
			g.Eventually(events.Seen).WithTimeout(patience / 60).ShouldNot(BeEmpty())
		}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
	}

	It("receives the events of pods from now on, in one namespace, until Stop", func(ctx SpecContext) {
		create(ctx, namespace, "old", nil)
		m, done := watching(options())
		begun(ctx)
		create(ctx, namespace, "new", nil)
		create(ctx, newNamespace(ctx), "elsewhere", nil)
		Expect(clients().CoreV1().Pods(namespace).Delete(ctx, "new", metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})).To(Succeed())
		create(ctx, namespace, "last", nil)
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED last"))
		Expect(events.Seen()).To(ContainElements("ADDED new", "DELETED new"))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("old")))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("elsewhere")))
		m.Stop()
		Eventually(done).WithContext(ctx).Should(Receive(BeNil()))
	}, SpecTimeout(2*patience))

	It("receives events of applications only with FilterEiriniApps", func(ctx SpecContext) {
		o := options()
		o.FilterEiriniApps = new(true)
		watching(o)
		begun(ctx)
		create(ctx, namespace, "task", nil)
		create(ctx, namespace, "app", map[string]string{eirinix.LabelSourceType: "APP"})
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED app"))
		Expect(events.Seen()).NotTo(ContainElement(HaveSuffix("task")))
	}, SpecTimeout(2*patience))

	It("receives every event once beside an extension, and may change the object of an event", func(ctx SpecContext) {
		m := addEnvManager(urlOptions(namespace))
		m.AddWatcher(events)
		go func() { _ = m.Watch() }()
		runManager(ctx, m)
		begun(ctx)
		Expect(createPod(ctx, namespace, NewPod("once", nil))).To(beMutated())
		create(ctx, namespace, "last", nil)
		Eventually(events.Seen).WithContext(ctx).Should(ContainElement("ADDED last"))
		Expect(slices.DeleteFunc(events.Seen(), func(e string) bool { return e != "ADDED once" })).To(HaveLen(1))
	}, SpecTimeout(2*patience))

	It("may lack the right to watch, which the error of Watch then names", func(ctx SpecContext) {
		o := options()
		o.RestConfig = Must(controlPlane().User("blind-" + namespace))
		_, done := watching(o)
		Eventually(done).WithContext(ctx).WithTimeout(patience).Should(Receive(MatchError(ContainSubstring("needs list and watch on pods"))))
	}, SpecTimeout(2*patience))
})

// touch is a Reconciler that annotates every pod it sees.
type touch struct{ manager eirinix.Manager }

func (t *touch) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c := t.manager.GetKubeManager().GetClient()
	pod := &corev1.Pod{}
	if err := c.Get(ctx, req.NamespacedName, pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"touched":"yes"}}}`))
	return reconcile.Result{}, c.Patch(ctx, pod, patch)
}

func (t *touch) Register(m eirinix.Manager) error {
	t.manager = m
	return ctrl.NewControllerManagedBy(m.GetKubeManager()).Named("touch").For(&corev1.Pod{}).Complete(t)
}

var _ = Describe("A Reconciler", Label("api-server"), func() {
	It("runs beside extensions, within the namespace of the options", func(ctx SpecContext) {
		namespace, other := newNamespace(ctx), newNamespace(ctx)
		m := addEnvManager(urlOptions(namespace))
		Expect(m.AddExtension(&touch{})).To(Succeed())
		runManager(ctx, m)

		outside := Must(createPod(ctx, other, NewPod("pod", nil)))
		Expect(createPod(ctx, namespace, NewPod("pod", nil))).To(beMutated())
		Eventually(func() (*corev1.Pod, error) {
			return clients().CoreV1().Pods(namespace).Get(ctx, "pod", metav1.GetOptions{})
		}).WithContext(ctx).WithTimeout(patience).Should(HaveField("Annotations", HaveKeyWithValue("touched", "yes")))
		Expect(clients().CoreV1().Pods(other).Get(ctx, "pod", metav1.GetOptions{})).
			To(HaveField("ResourceVersion", outside.ResourceVersion))
	}, SpecTimeout(2*patience))
})
