package cluster_test

// This file runs the specs. It is about watches of pods that are interrupted, and kinds that are waited for.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/cluster"
)

func TestCluster(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "cluster")
}

// script plays an API server: each list and each watch gets the next answer.
type script struct {
	lists   []corev1.PodList
	watches [][]watch.Event
	asked   []string // resourceVersions that watches began at
	pages   []string // limits and places of lists
}

// tooLate is a page that is asked for after the history has been compacted.
const tooLate = "too late"

func (s *script) pods() *fake.Clientset {
	clientset := fake.NewClientset()
	clientset.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.ListActionImpl).ListOptions
		list := s.lists[0]
		s.lists, s.pages = s.lists[1:], append(s.pages, fmt.Sprint(o.Limit, " ", o.Continue))
		if list.ResourceVersion == tooLate {
			return true, nil, apierrors.NewResourceExpired("the continue token is too old")
		}
		return true, &list, nil
	})
	clientset.PrependWatchReactor("pods", func(action clienttesting.Action) (bool, watch.Interface, error) {
		s.asked = append(s.asked, action.(clienttesting.WatchActionImpl).WatchRestrictions.ResourceVersion)
		if len(s.watches) == 0 {
			return true, nil, apierrors.NewForbidden(schemaPods, "", errors.New("the script is over"))
		}
		events := s.watches[0]
		s.watches = s.watches[1:]
		w := watch.NewFakeWithChanSize(len(events), false)
		for _, e := range events {
			w.Action(e.Type, e.Object)
		}
		w.Stop() // the API server closes every watch in the end
		return true, w, nil
	})
	return clientset
}

var schemaPods = corev1.Resource("pods")

func pod(name, resourceVersion string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: resourceVersion}}
}

func podList(resourceVersion string, pods ...*corev1.Pod) corev1.PodList {
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
	}
	return list
}

var expired = watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired("too old").ErrStatus}

// follow runs a watch until the script is over, and returns the events.
func (s *script) follow(ctx context.Context, from string) (heard []string) {
	w := cluster.PodWatch{Pods: s.pods().CoreV1().Pods("ns"), ResourceVersion: from, Log: logr.Discard(), Deliver: func(e watch.Event) {
		p := e.Object.(*corev1.Pod)
		heard = append(heard, string(e.Type)+" "+p.Name+" "+p.ResourceVersion)
	}}
	Expect(apierrors.IsForbidden(w.Run(ctx))).To(BeTrue(), "runs until the script is over")
	return heard
}

var _ = DescribeTable("Following pods across interruptions",
	func(ctx SpecContext, startRV string, s *script, events, asked []string) {
		Expect(s.follow(ctx, startRV)).To(Equal(events))
		Expect(s.asked).To(Equal(asked))
		Expect(s.pages).To(HaveEach("500 "))
	},
	Entry("a pod that exists at the beginning is no event", "", &script{
		lists:   []corev1.PodList{podList("10", pod("old", "5")), podList("11", pod("old", "5"), pod("new", "11"))},
		watches: [][]watch.Event{{{Type: watch.Added, Object: pod("new", "11")}}},
	}, []string{"ADDED new 11"}, []string{"10", "11"}),
	Entry("after a watch that has ended early, only a difference becomes events", "", &script{
		lists:   []corev1.PodList{podList("10"), podList("20", pod("a", "11")), podList("21")},
		watches: [][]watch.Event{{{Type: watch.Added, Object: pod("a", "11")}, {Type: watch.Bookmark, Object: pod("", "20")}}, {{Type: watch.Deleted, Object: pod("a", "21")}}},
	}, []string{"ADDED a 11", "DELETED a 21"}, []string{"10", "20", "21"}),
	Entry("after 410 the difference becomes events", "", &script{
		lists: []corev1.PodList{
			podList("10", pod("stays", "1"), pod("changes", "2"), pod("goes", "3")),
			podList("30", pod("stays", "1"), pod("changes", "22"), pod("comes", "23")),
		},
		watches: [][]watch.Event{{{Type: watch.Modified, Object: pod("goes", "12")}, expired}},
	}, []string{"MODIFIED goes 12", "DELETED goes 12", "MODIFIED changes 22", "ADDED comes 23"}, []string{"10", "30"}),
	Entry("a start that is too old begins with the existing pods", "1", &script{
		lists:   []corev1.PodList{podList("30", pod("there", "5"))},
		watches: [][]watch.Event{{expired}},
	}, []string{"ADDED there 5"}, []string{"1", "30"}),
)

var _ = It("lists pods in pages, and all at once where the pages took too long", func(ctx SpecContext) {
	page := func(resourceVersion string, p *corev1.Pod) corev1.PodList {
		list := podList(resourceVersion, p)
		list.Continue = "2"
		return list
	}
	s := &script{
		lists:   []corev1.PodList{page("10", pod("a", "1")), podList("10", pod("b", "2")), page("30", pod("a", "1")), podList(tooLate), podList("31", pod("b", "2"), pod("c", "30"))},
		watches: [][]watch.Event{{expired}},
	}
	Expect(s.follow(ctx, "")).To(Equal([]string{"DELETED a 1", "ADDED c 30"}), "b is known from the second page")
	Expect(s.pages).To(Equal([]string{"500 ", "500 2", "500 ", "500 2", "0 "}))
	Expect(s.asked).To(Equal([]string{"10", "31"}))
})

var _ = It("lists pods again after an interruption if the cluster has gone back", func(ctx SpecContext) {
	s := &script{
		lists:   []corev1.PodList{podList("10", pod("lost", "5")), podList("4", pod("kept", "3"))},
		watches: [][]watch.Event{{{Type: watch.Error, Object: &apierrors.NewInternalError(errors.New("etcd is away")).ErrStatus}}},
	}
	Expect(s.follow(ctx, "")).To(Equal([]string{"DELETED lost 5", "ADDED kept 3"}))
	Expect(s.pages).To(Equal([]string{"500 ", "500 "}))
	Expect(s.asked).To(Equal([]string{"10", "4"}), "a watch would wait for a version of the future")
})

func TestOnlyAWatchThatEndsAsAgreedGoesOn(t *testing.T) {
	for early, again := range map[time.Duration]int{0: 1, 2 * time.Second: 2} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 38*time.Second) // a watch lasts for 25 s
			defer cancel()
			lists, list := 0, podList("10")
			f := cluster.Follower{
				List: func(context.Context, metav1.ListOptions) (client.ObjectList, error) { lists++; return &list, nil },
				Watch: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
					w := watch.NewFake()
					time.AfterFunc(time.Duration(*o.TimeoutSeconds)*time.Second-early, w.Stop)
					return w, nil
				},
				Resumes: func(time.Time) bool { return true }, Brief: func() bool { return true },
				Restart: func() {}, Take: func(watch.EventType, client.Object) {}, Begun: func() {},
			}
			_ = f.Run(ctx) // it ends with the context
			NewWithT(t).Expect(lists).To(Equal(again), "a watch that ended %s before its time", early)
		})
	}
}

// forbids refuses all requests.
type forbids struct{}

func (forbids) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusForbidden, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)),
	}, nil
}

func TestAttemptsAreSecondsApartWhereDefinitionsMayNotBeWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		a := cluster.NewAttempts(&rest.Config{Host: "http://cluster", Transport: forbids{}}, logr.Discard(), func(f func()) { go f() })
		last := time.Now()
		for n := 0; a.Await(ctx, true, true, nil, nil); n++ {
			NewWithT(t).Expect(time.Since(last)).To(BeNumerically("<=", 5*time.Second), "attempt %d", n)
			last = time.Now()
		}
		synctest.Wait()
	})
}
