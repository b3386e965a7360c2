package cluster

// This file defines a cache of objects, and holds the one of a short-lived process. It also connects a client of Secrets
// with a cache.

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrUnseen reports that reading an object is forbidden, or that it has not been read yet. The reason is wrapped too,
// if it is known.
var ErrUnseen = errors.New("it cannot be read")

// unseen returns ErrUnseen with the reason. It hides a NotFound, because a missing kind must not be taken for a missing
// object.
func unseen(why error) error {
	if apierrors.IsNotFound(why) {
		why = errors.New(why.Error())
	}
	return fmt.Errorf("%w: %w", ErrUnseen, why)
}

// Cache holds copies of objects. Get fails with ErrUnseen or NotFound. Saw adds an object that this process has read or
// written itself, which a watch may not have delivered yet.
type Cache interface {
	Get(ctx context.Context, into client.Object) error
	Saw(object client.Object)
}

var (
	_ Cache = (*Objects)(nil)
	_ Cache = (*Direct)(nil)
)

// Direct is the Cache of a short-lived process. It stores nothing and sends a request for each Get.
type Direct struct{ reader client.Reader }

// NewDirect returns a Direct. It sends no request.
func NewDirect(config *rest.Config) (*Direct, error) {
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for object, scope := range map[client.Object]meta.RESTScope{
		&corev1.Secret{}:        meta.RESTScopeNamespace,
		&coordinationv1.Lease{}: meta.RESTScopeNamespace,
		&admissionregistrationv1.MutatingWebhookConfiguration{}:   meta.RESTScopeRoot,
		&admissionregistrationv1.ValidatingWebhookConfiguration{}: meta.RESTScopeRoot,
		crd(): meta.RESTScopeRoot,
	} {
		kind, err := apiutil.GVKForObject(object, scheme.Scheme)
		if err != nil {
			return nil, err
		}
		mapper.Add(kind, scope)
	}
	reader, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme.Scheme, Mapper: mapper})
	return &Direct{reader: reader}, err
}

// crd returns a CustomResourceDefinition. It has no Go type here, because only a few of its fields matter.
func crd() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("apiextensions.k8s.io/v1")
	object.SetKind("CustomResourceDefinition")
	return object
}

// Get implements Cache.
func (d *Direct) Get(ctx context.Context, into client.Object) error {
	err := d.reader.Get(ctx, client.ObjectKeyFromObject(into), into)
	if apierrors.IsForbidden(err) {
		return unseen(err)
	}
	return err
}

// Saw implements Cache.
func (*Direct) Saw(client.Object) {}

// SeenSecrets passes each Secret that this process has read or written itself to the cache.
type SeenSecrets struct {
	corev1client.SecretInterface
	Cache Cache
}

func (s SeenSecrets) saw(secret *corev1.Secret, err error) (*corev1.Secret, error) {
	if err == nil {
		s.Cache.Saw(secret.DeepCopy())
	}
	return secret, err
}

func (s SeenSecrets) Get(ctx context.Context, name string, o metav1.GetOptions) (*corev1.Secret, error) {
	return s.saw(s.SecretInterface.Get(ctx, name, o))
}

func (s SeenSecrets) Create(ctx context.Context, secret *corev1.Secret, o metav1.CreateOptions) (*corev1.Secret, error) {
	return s.saw(s.SecretInterface.Create(ctx, secret, o))
}

func (s SeenSecrets) Update(ctx context.Context, secret *corev1.Secret, o metav1.UpdateOptions) (*corev1.Secret, error) {
	return s.saw(s.SecretInterface.Update(ctx, secret, o))
}
