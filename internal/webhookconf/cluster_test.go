package webhookconf_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	configurationName = "eirini-x-mutating-hook"
	resourceName      = "mutatingwebhookconfigurations"
	owner             = "cf/eirini-x-setupcertificate"
	otherOwner        = "other/eirini-x-setupcertificate"
)

var groupResource = schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: resourceName}

// cluster is client-go's fake clientset, asked for what reached it.
type cluster struct {
	*fake.Clientset
}

func newCluster(objects ...runtime.Object) *cluster { return &cluster{fake.NewClientset(objects...)} }

// verbs are what has reached the cluster, in order.
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

// behindTheScenes changes what the cluster holds without leaving an action behind.
func (c *cluster) behindTheScenes(change func(t clienttesting.ObjectTracker) error) {
	GinkgoHelper()
	Expect(change(c.Tracker())).To(Succeed())
}

// tamper changes what stands in the cluster.
func (c *cluster) tamper(change func(*admissionregistrationv1.MutatingWebhookConfiguration)) {
	GinkgoHelper()
	found := c.stored().DeepCopy()
	change(found)
	c.replace(found)
}

// replace puts another in the place of what stands in the cluster.
func (c *cluster) replace(with *admissionregistrationv1.MutatingWebhookConfiguration) {
	GinkgoHelper()
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Update(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), with, "")
	})
}

func (c *cluster) lose() {
	GinkgoHelper()
	c.behindTheScenes(func(t clienttesting.ObjectTracker) error {
		return t.Delete(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
	})
}

func (c *cluster) stored() *admissionregistrationv1.MutatingWebhookConfiguration {
	GinkgoHelper()
	found, err := c.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
	Expect(err).NotTo(HaveOccurred())
	return found.(*admissionregistrationv1.MutatingWebhookConfiguration)
}

func (c *cluster) holdsNothing() bool {
	_, err := c.Tracker().Get(admissionregistrationv1.SchemeGroupVersion.WithResource(resourceName), "", configurationName)
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

// configuration is one of ours as it stands in a cluster after some use. Nothing tells whose steps it holds: so it was
// before there were stamps.
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
