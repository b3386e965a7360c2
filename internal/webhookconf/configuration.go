package webhookconf

import (
	"context"

	admissionregistrationv1client "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
)

// A Configuration is one of the two webhook configurations of a deployment, as it stands in a cluster.
type Configuration interface {
	// String is kind and name.
	String() string
	// Holds tells whether entries of its kind are among these.
	Holds(entries []Entry) bool
	// Apply makes the webhooks equal to the entries of its kind, as Kind.Apply does.
	Apply(ctx context.Context, o Options, entries []Entry) (Outcome, error)
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

func (c *configurationOf[C, W]) Apply(ctx context.Context, o Options, entries []Entry) (Outcome, error) {
	_, outcome, err := c.kind.Apply(ctx, c.client, c.name, c.owner, c.kind.Build(o, entries))
	return outcome, err
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
