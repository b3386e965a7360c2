package webhookconf_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// plane is an API server that runs; see controlPlane.
type plane struct {
	config  *rest.Config
	restart func(context.Context) error
}

var noon = time.Date(2030, time.March, 1, 12, 0, 0, 0, time.UTC)

// both returns the configurations of the options' fingerprint.
func both(in dynamic.Interface, o webhookconf.Options) (mutating, validating webhookconf.Configuration) {
	all := webhookconf.Configurations(in, o, owner)
	return all[0], all[1]
}

// mutatingIn returns the mutating configuration of the fingerprint "eirini-x".
func mutatingIn(in dynamic.Interface) webhookconf.Configuration {
	mutating, _ := both(in, urlOptions())
	return mutating
}

// desired is the registration of a program with these steps.
func desired(o webhookconf.Options, steps ...webhookconf.Step) *webhookconf.Desired {
	o.CABundle = nil
	d := &webhookconf.Desired{Options: o, Entries: webhookconf.Group(steps)}
	d.Version = webhookconf.Digest(*d)
	return d
}

// volumes is the registration of one step, with an entry of its own.
func volumes(changes ...change) *webhookconf.Desired {
	return desired(urlOptions(), step("volumes", append(changes, isolated)...))
}

// trusting is a change of the entries and of the caBundle.
func trusting(d *webhookconf.Desired, bundle string) webhookconf.Change {
	return webhookconf.Change{Entries: d, Bundle: []byte(bundle)}
}

// register gets, decides and puts, again after each lost race. The decision is made anew each time.
func register(ctx context.Context, c webhookconf.Configuration, decide func(webhookconf.Found) webhookconf.Change) (webhookconf.Found, webhookconf.Outcome, error) {
	for {
		found, err := c.Get(ctx)
		if err != nil {
			return found, "", err
		}
		after, outcome, err := c.Put(ctx, found, decide(found))
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			continue
		}
		return after, outcome, err
	}
}

// registers is a program that registers these entries and trusts this bundle.
func registers(ctx context.Context, c webhookconf.Configuration, d *webhookconf.Desired, bundle string) webhookconf.Outcome {
	GinkgoHelper()
	_, outcome, err := register(ctx, c, func(webhookconf.Found) webhookconf.Change { return trusting(d, bundle) })
	Expect(err).NotTo(HaveOccurred())
	return outcome
}

func get(ctx context.Context, c webhookconf.Configuration) webhookconf.Found {
	GinkgoHelper()
	found, err := c.Get(ctx)
	Expect(err).NotTo(HaveOccurred())
	return found
}

// put puts a change of the configuration as it is now.
func put(ctx context.Context, c webhookconf.Configuration, change webhookconf.Change) (webhookconf.Found, webhookconf.Outcome) {
	GinkgoHelper()
	found, outcome, err := c.Put(ctx, get(ctx, c), change)
	Expect(err).NotTo(HaveOccurred())
	return found, outcome
}

func texts(all [][]byte) (texts []string) {
	for _, b := range all {
		texts = append(texts, string(b))
	}
	return texts
}

// authorities are the CAs of the specs, made once.
var authorities = sync.OnceValue(func() (all []*x509.Certificate) {
	for range 3 {
		a, err := ca.New("spec", time.Hour, time.Now())
		if err != nil {
			Fail(err.Error())
		}
		all = append(all, a.Certificate)
	}
	return all
})

// pem returns the bundle of some of the authorities, by their index.
func pem(indices ...int) (bundle string) {
	for _, i := range indices {
		bundle += string(ca.EncodeCertificate(authorities()[i]))
	}
	return bundle
}

func hash(i int) string { return webhookconf.HashOf(authorities()[i]) }

// Ways to damage a configuration.

func blank(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range m.Webhooks {
		m.Webhooks[i].ClientConfig.CABundle = nil
	}
}

func weaken(m *admissionregistrationv1.MutatingWebhookConfiguration) {
	m.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
}

func blankAll(m *admissionregistrationv1.MutatingWebhookConfiguration) { m.Webhooks = nil }

func marshal(value any) []byte {
	GinkgoHelper()
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}
