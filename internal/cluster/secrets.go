package cluster

// This file connects a client of Secrets with the cache of Secrets.

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

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
