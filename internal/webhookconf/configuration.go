package webhookconf

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// A Configuration is one of the two webhook configurations of a deployment, as it stands in a cluster.
type Configuration interface {
	// String is kind and name.
	String() string
	// Holds tells whether entries of its kind are among these.
	Holds(entries []Entry) bool
	// Name is the name of the object.
	Name() string
	// Apply makes the webhooks equal to the entries of its kind, as Kind.Apply does, with the bundle that bundle gives
	// for those that are registered now. It may be called more than once.
	Apply(ctx context.Context, o Options, entries []Entry, bundle func(live [][]byte) ([]byte, error)) (Outcome, error)
	// Watch tells of changes to the object, and of nothing else.
	Watch(ctx context.Context) (watch.Interface, error)
	// Delete removes the configuration if it is ours.
	Delete(ctx context.Context) (Outcome, error)
	// Look tells what stands there of the entries of its kind.
	Look(ctx context.Context, fingerprint string, entries []Entry) (Live, error)
}

// Live is what an API server holds.
type Live struct {
	Exists  bool
	Missing []string // names of entries that are not there
	Bundles [][]byte // the different caBundles of those that are
}

// Configurations gives both, the mutating one first. owner is the certificate Secret, "namespace/name".
func Configurations(client admissionregistrationv1client.AdmissionregistrationV1Interface, fingerprint, owner string) []Configuration {
	return []Configuration{
		inCluster(Mutating, client.MutatingWebhookConfigurations(), fingerprint, owner),
		inCluster(Validating, client.ValidatingWebhookConfigurations(), fingerprint, owner),
	}
}

type configurationOf[C object[C], W any] struct {
	kind        Kind[C, W]
	client      ClientOf[C]
	name, owner string
}

func inCluster[C object[C], W any](k Kind[C, W], client ClientOf[C], fingerprint, owner string) Configuration {
	return &configurationOf[C, W]{kind: k, client: client, name: k.ConfigurationName(fingerprint), owner: owner}
}

func (c *configurationOf[C, W]) String() string { return c.kind.Name + " " + c.name }

func (c *configurationOf[C, W]) Holds(entries []Entry) bool {
	for _, e := range entries {
		if e.Validating == c.kind.validating {
			return true
		}
	}
	return false
}

func (c *configurationOf[C, W]) Name() string { return c.name }

func (c *configurationOf[C, W]) Apply(ctx context.Context, o Options, entries []Entry, bundle func(live [][]byte) ([]byte, error)) (Outcome, error) {
	_, outcome, err := c.kind.apply(ctx, c.client, c.name, c.owner, o.OwnedBy, func(existing C) ([]W, error) {
		if !c.Holds(entries) {
			return nil, nil
		}
		var err error
		if o.CABundle, err = bundle(c.kind.Bundles(existing, o.Fingerprint, entries)); err != nil {
			return nil, err
		}
		return c.kind.Build(o, entries), nil
	})
	return outcome, err
}

func (c *configurationOf[C, W]) Watch(ctx context.Context) (watch.Interface, error) {
	w, err := c.client.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, c.name).String()})
	if err != nil {
		return nil, c.kind.explain(c.name, "watch", err)
	}
	return w, nil
}

func (c *configurationOf[C, W]) Delete(ctx context.Context) (Outcome, error) {
	return c.kind.Delete(ctx, c.client, c.name, c.owner)
}

func (c *configurationOf[C, W]) Look(ctx context.Context, fingerprint string, entries []Entry) (Live, error) {
	found, err := c.kind.Read(ctx, c.client, c.name)
	if err != nil {
		return Live{}, err
	}
	var none C
	return Live{
		Exists:  found != none,
		Missing: c.kind.Missing(found, fingerprint, entries),
		Bundles: c.kind.Bundles(found, fingerprint, entries),
	}, nil
}
