package certsource_test

// What can happen to a watch, played by a client that answers as a spec likes.

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/certsource"
)

var _ = Describe("A watch", func() {
	var (
		r       *recorder
		lists   chan *corev1.SecretList
		watches chan *watch.FakeWatcher
		refused chan error
	)

	BeforeEach(func() {
		r = newRecorder()
		lists, watches, refused = make(chan *corev1.SecretList, 10), make(chan *watch.FakeWatcher, 10), make(chan error, 10)
		client := fake.NewClientset()
		client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			select {
			case list := <-lists:
				return true, list, nil
			default:
				return true, nil, errors.New("the network is down")
			}
		})
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
			select {
			case err := <-refused:
				return true, nil, err
			case w, open := <-watches:
				if !open {
					return true, nil, errors.New("the spec is over")
				}
				return true, w, nil
			}
		})
		source := &certsource.Secret{
			Secrets: client.CoreV1().Secrets("cf"), Namespace: "cf", Name: secretName,
			Hosts: hosts, Poll: 5 * time.Millisecond, Log: r.log(),
		}
		run(source, r)
		DeferCleanup(func() { close(watches) }) // whoever waits for one gets none
	})

	secret := func(version string, i issued) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cf", Name: secretName, ResourceVersion: version}, Data: data(i)}
	}
	list := func(version string, i issued) *corev1.SecretList {
		return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []corev1.Secret{*secret(version, i)}}
	}

	It("is begun anew with a list, whatever ended it", func() {
		Eventually(r.reason).Should(ContainSubstring("it cannot be read: the network is down"))
		ends := []func(*watch.FakeWatcher){
			func(w *watch.FakeWatcher) { w.Stop() },
			func(w *watch.FakeWatcher) {
				w.Error(&metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old resource version"})
			},
			func(w *watch.FakeWatcher) { w.Add(&corev1.Pod{}) },
		}
		for _, end := range ends {
			listed, changed := issue(), issue()
			w := watch.NewFake()
			lists <- list("5", listed)
			refused <- apierrors.NewResourceExpired("too old resource version: 5 (9)")
			lists <- list("9", listed)
			watches <- w
			Eventually(r.serial).Should(Equal(serialOf(listed)))
			w.Action(watch.Bookmark, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "11"}})
			w.Modify(secret("12", changed))
			Eventually(r.serial).Should(Equal(serialOf(changed)))
			Expect(r.reason()).To(BeEmpty(), "a bookmark is not a Secret without data")
			end(w)
			Eventually(r.reason).Should(ContainSubstring("the network is down"), "there is no further list")
		}
	})
})

func TestSecretTriesToWatchAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, i := plain(t), issue()
		var granted atomic.Bool
		var tried, watched atomic.Int64
		client := fake.NewClientset(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cf", Name: secretName}, Data: data(i)})
		client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			tried.Add(1)
			if granted.Load() {
				return true, &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
			}
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), secretName, errors.New("no"))
		})
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
			watched.Add(1)
			return true, watch.NewFake(), nil
		})
		source := &certsource.Secret{Secrets: client.CoreV1().Secrets("cf"), Namespace: "cf", Name: secretName, Hosts: hosts, Log: r.log()}
		go func() { _ = source.Run(t.Context(), r.deliver, r.wait) }()
		time.Sleep(2*time.Hour - time.Minute)
		synctest.Wait()
		Expect(r.deliveries()).To(Equal(1))
		Expect(tried.Load()).To(BeEquivalentTo(12), "every ten minutes")
		Expect(count(r.logged(), "may not be watched")).To(Equal(1), "said once")
		granted.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		Expect(watched.Load()).To(BeEquivalentTo(1))
	})
}
