package webhookconf_test

import (
	"context"
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
	client webhookconf.ClientOf[*admissionregistrationv1.MutatingWebhookConfiguration]
}

func newCluster(objects ...runtime.Object) *cluster {
	set := fake.NewClientset(objects...)
	return &cluster{Clientset: set, client: set.AdmissionregistrationV1().MutatingWebhookConfigurations()}
}

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

func (c *cluster) apply(ctx context.Context, webhooks []admissionregistrationv1.MutatingWebhook) (*admissionregistrationv1.MutatingWebhookConfiguration, webhookconf.Outcome, error) {
	return webhookconf.Mutating.Apply(ctx, c.client, configurationName, owner, webhooks)
}

// configuration is one of ours as it stands in a cluster after some use.
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

func conflict() error {
	return apierrors.NewConflict(groupResource, configurationName, nil)
}

func forbidden() error {
	return apierrors.NewForbidden(groupResource, configurationName, nil)
}
