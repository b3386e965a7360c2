package webhookconf_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	configurationName = "eirini-x-mutating-hook"
	resourceName      = "mutatingwebhookconfigurations"
	owner             = "cf/eirini-x-setupcertificate"
	otherOwner        = "other/eirini-x-setupcertificate"
)

var (
	mutatingResource = admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName)
	groupResource    = mutatingResource.GroupResource()
)

// cluster is client-go's fake dynamic client, with the API server's optimistic lock, and with questions about the
// requests that reached it. It keeps the fields that no Go type knows.
type cluster struct {
	*fake.FakeDynamicClient
	uids int
}

func newCluster(objects ...runtime.Object) *cluster {
	c := &cluster{FakeDynamicClient: fake.NewSimpleDynamicClient(scheme.Scheme, objects...)}
	c.PrependReactor("create", "*", c.version)
	c.PrependReactor("update", "*", c.version)
	return c
}

// version gives each object that is written a new resourceVersion, and refuses updates of any but the last one.
func (c *cluster) version(a clienttesting.Action) (bool, runtime.Object, error) {
	written, err := meta.Accessor(a.(interface{ GetObject() runtime.Object }).GetObject())
	if err != nil {
		return true, nil, err
	}
	if a.GetVerb() == "create" {
		c.uids++
		written.SetUID(types.UID(fmt.Sprint("uid-", c.uids)))
		written.SetResourceVersion("1")
		return false, nil, nil
	}
	live, err := c.Tracker().Get(a.GetResource(), "", written.GetName())
	if err != nil {
		return true, nil, err
	}
	found, err := meta.Accessor(live)
	if err != nil {
		return true, nil, err
	}
	if written.GetResourceVersion() != found.GetResourceVersion() || written.GetUID() != found.GetUID() {
		return true, nil, conflict()
	}
	version, err := strconv.Atoi(found.GetResourceVersion())
	if err != nil {
		return true, nil, err
	}
	written.SetResourceVersion(strconv.Itoa(version + 1))
	return false, nil, nil
}

// verbs are those of the requests that have reached the cluster, in order.
func (c *cluster) verbs() []string {
	var verbs []string
	for _, a := range c.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	return verbs
}

// writes are the verbs that change something.
func (c *cluster) writes() []string {
	return slices.DeleteFunc(c.verbs(), func(verb string) bool {
		return slices.Contains([]string{"get", "list", "watch"}, verb)
	})
}

// once lets the next action of the verb meet something else, and then stands aside.
func (c *cluster) once(verb string, meets func() error) {
	done := false
	c.PrependReactor(verb, resourceName, func(clienttesting.Action) (bool, runtime.Object, error) {
		if done {
			return false, nil, nil
		}
		done = true
		err := meets()
		return err != nil, nil, err
	})
}

// always answers a verb with an error.
func (c *cluster) always(verb string, err error) {
	c.PrependReactor(verb, resourceName, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

// behindTheScenes changes the stored objects without recording an action.
func (c *cluster) behindTheScenes(change func(t clienttesting.ObjectTracker) error) {
	GinkgoHelper()
	Expect(change(c.Tracker())).To(Succeed())
}

// tamper changes the stored configuration, in a new version.
func (c *cluster) tamper(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
	GinkgoHelper()
	found := c.stored()
	change(found)
	c.replace(untyped(found))
}

// replace changes the stored configuration, in a new version.
func (c *cluster) replace(next *unstructured.Unstructured) {
	GinkgoHelper()
	version, err := strconv.Atoi(next.GetResourceVersion())
	Expect(err).NotTo(HaveOccurred())
	next.SetResourceVersion(strconv.Itoa(version + 1))
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error { return t.Update(mutatingResource, next, "") })
}

func (c *cluster) lose() {
	GinkgoHelper()
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Delete(mutatingResource, "", configurationName)
	})
}

func (c *cluster) stored() *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	var found admissionregistrationv1.MutatingWebhookConfiguration
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(c.tree().Object, &found)).To(Succeed())
	found.TypeMeta = metav1.TypeMeta{}
	return &found
}

// tree returns a copy of the stored configuration with every field.
func (c *cluster) tree() *unstructured.Unstructured {
	GinkgoHelper()
	found, err := c.Tracker().Get(mutatingResource, "", configurationName)
	Expect(err).NotTo(HaveOccurred())
	return found.(*unstructured.Unstructured).DeepCopy()
}

// untyped returns the object as it is stored.
func untyped(object runtime.Object) *unstructured.Unstructured {
	GinkgoHelper()
	var stored unstructured.Unstructured
	Expect(scheme.Scheme.Convert(object, &stored, nil)).To(Succeed())
	return &stored
}

// holding returns a cache that holds the object.
func holding(object *unstructured.Unstructured) func(context.Context, client.Object) error {
	return func(_ context.Context, into client.Object) error {
		into.(*unstructured.Unstructured).Object = object.Object
		return nil
	}
}

func (c *cluster) holdsNothing() bool {
	_, err := c.Tracker().Get(mutatingResource, "", configurationName)
	return apierrors.IsNotFound(err)
}

func (c *cluster) names() (all []string) {
	for _, w := range c.stored().Webhooks {
		all = append(all, w.Name)
	}
	return all
}

func (c *cluster) bundles() (all []string) {
	for _, w := range c.stored().Webhooks {
		all = append(all, string(w.ClientConfig.CABundle))
	}
	return all
}

// configuration is one of ours as it stands in a cluster after some use, without a version.
func configuration(webhooks []admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{
			Name:            configurationName,
			UID:             "11111111-2222-3333-4444-555555555555",
			ResourceVersion: "41",
			Labels:          map[string]string{"app.kubernetes.io/managed-by": "eirinix", "team": "storage"},
			Annotations:     map[string]string{webhookconf.OwnerAnnotation: owner, "note": "do not touch"},
			Finalizers:      []string{"example.org/guard"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "cf", UID: "ns"}},
		},
		Webhooks: webhooks,
	}
}

// foreign is one that belongs to another deployment.
func foreign(webhooks []admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := configuration(webhooks)
	c.Annotations[webhookconf.OwnerAnnotation] = otherOwner
	return c
}

func conflict() error {
	return apierrors.NewConflict(groupResource, configurationName, nil)
}

func forbidden() error {
	return apierrors.NewForbidden(groupResource, configurationName, nil)
}
