package certsecret_test

// A fake API server that is as strict about Secrets as the real one: client-go's tracker alone neither
// sets nor checks resourceVersion, and knows nothing of immutable Secrets.

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const (
	namespace = "cf"
	name      = "eirini-x-setupcertificate"
)

var secrets = corev1.SchemeGroupVersion.WithResource("secrets")

type cluster struct {
	*fake.Clientset
	mu               sync.Mutex
	version          int
	created, updated int // successful writes only
}

// newCluster holds a Secret with this data, or none if data is nil.
func newCluster(data map[string][]byte, edit ...func(*corev1.Secret)) *cluster {
	GinkgoHelper()
	c := &cluster{Clientset: fake.NewClientset()}
	c.PrependReactor("create", "secrets", c.create)
	c.PrependReactor("update", "secrets", c.update)
	if data != nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"},
			Type:       corev1.SecretTypeOpaque,
			Data:       data,
		}
		for _, e := range edit {
			e(secret)
		}
		Expect(c.Tracker().Add(secret)).To(Succeed())
		c.version = 1
	}
	return c
}

func (c *cluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret).DeepCopy()
	secret.ResourceVersion = strconv.Itoa(c.version + 1)
	if err := c.Tracker().Create(secrets, secret, action.GetNamespace()); err != nil {
		return true, nil, err
	}
	c.version++
	c.created++
	return true, secret, nil
}

func (c *cluster) update(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	secret := action.(clienttesting.UpdateAction).GetObject().(*corev1.Secret).DeepCopy()
	object, err := c.Tracker().Get(secrets, action.GetNamespace(), secret.Name)
	if err != nil {
		return true, nil, err
	}
	live := object.(*corev1.Secret)
	if secret.ResourceVersion == "" {
		return true, nil, apierrors.NewBadRequest("an update without resourceVersion would overwrite anything")
	}
	if secret.ResourceVersion != live.ResourceVersion {
		return true, nil, apierrors.NewConflict(secrets.GroupResource(), secret.Name, nil)
	}
	if live.Immutable != nil && *live.Immutable || secret.Type != live.Type {
		return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), secret.Name, nil)
	}
	c.version++
	secret.ResourceVersion = strconv.Itoa(c.version)
	c.updated++
	return true, secret, c.Tracker().Update(secrets, secret, action.GetNamespace())
}

// fail answers a verb with an error, the first times only if times is not negative.
func (c *cluster) fail(verb string, times int, err error) {
	c.PrependReactor(verb, "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if times == 0 {
			return false, nil, nil
		}
		times--
		return true, nil, err
	})
}

func (c *cluster) store() *certsecret.Store {
	return c.storeAt(now)
}

func (c *cluster) storeAt(at time.Time) *certsecret.Store {
	return &certsecret.Store{
		Secrets: c.CoreV1().Secrets(namespace), Namespace: namespace, Name: name,
		Lifetime: 10 * year, Log: logr.Discard(), Now: func() time.Time { return at },
	}
}

func (c *cluster) secret() *corev1.Secret {
	GinkgoHelper()
	return Must(c.CoreV1().Secrets(namespace).Get(context.Background(), name, metav1.GetOptions{}))
}

// edit changes the Secret behind the Store's back.
func (c *cluster) edit(change func(*corev1.Secret)) {
	GinkgoHelper()
	secret := c.secret()
	change(secret)
	Must(c.CoreV1().Secrets(namespace).Update(context.Background(), secret, metav1.UpdateOptions{}))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updated--
}

func (c *cluster) delete() {
	GinkgoHelper()
	Expect(c.CoreV1().Secrets(namespace).Delete(context.Background(), name, metav1.DeleteOptions{})).To(Succeed())
}

// writes counts the attempts to change anything, by verb.
func (c *cluster) writes() map[string]int {
	counts := map[string]int{}
	for _, action := range c.Actions() {
		if verb := action.GetVerb(); verb != "get" && verb != "list" && verb != "watch" {
			counts[verb]++
		}
	}
	return counts
}

func without(data map[string][]byte, keys ...string) map[string][]byte {
	data = maps.Clone(data)
	for _, key := range keys {
		delete(data, key)
	}
	return data
}

func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	data = maps.Clone(data)
	data[key] = value
	return data
}
