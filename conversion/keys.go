package conversion

// This file keeps the keys that sign annotations in a Secret.

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"code.cloudfoundry.org/eirinix/internal/convert"
	"code.cloudfoundry.org/eirinix/internal/seam"
	"code.cloudfoundry.org/eirinix/internal/wait"
)

// keys are the keys of a program, which its Secret holds.
type keys struct {
	convert.Keys
	secrets corev1client.SecretsGetter
	secret  types.NamespacedName
	makes   bool
	log     logr.Logger
}

// newKeys is seam.Conversion.NewKeys. Everyone knows the key of a program without a cluster, so that goldens stay the same.
func newKeys(secrets corev1client.SecretsGetter, secret types.NamespacedName, makes bool, log logr.Logger) seam.Keys {
	k := &keys{secrets: secrets, secret: secret, makes: makes, log: log}
	if secrets == nil {
		k.Learn([]byte("the key of a program without a cluster"))
	} else {
		k.Fetch = k.fetch
	}
	return k
}

// Obtain makes or reads the Secret. While one that this process does not make is missing, conversions that lose nothing
// succeed, and others look for it again.
func (k *keys) Obtain(ctx context.Context) error {
	err := wait.Retry(ctx, k.log, "the keys of the conversions", func(ctx context.Context) error {
		all, err := k.fetch(ctx)
		k.Learn(all...)
		return err
	})
	if !k.makes && apierrors.IsNotFound(err) {
		k.log.Info("the keys of the conversions are missing; objects of which a version cannot hold all fail until the registering half has made them",
			"secret", k.secret.String())
		return nil
	}
	return err
}

// fetch reads the keys in the order of their names, of which the last one signs. It makes a Secret that is missing with the
// keys that this process knows, else with a new one. Of two processes that make it, the first wins.
func (k *keys) fetch(ctx context.Context) (all [][]byte, err error) {
	secrets := k.secrets.Secrets(k.secret.Namespace)
	secret, err := secrets.Get(ctx, k.secret.Name, metav1.GetOptions{})
	if k.makes && wait.Vanished(err) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.secret.Namespace, Name: k.secret.Name}, Data: map[string][]byte{}}
		known := k.Known()
		if len(known) == 0 {
			known = append(known, []byte(rand.Text()+rand.Text())) // 260 bits
		}
		for i, key := range known {
			secret.Data[fmt.Sprintf("%s-%02d", time.Now().UTC().Format("20060102"), i+1)] = key
		}
		if secret, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			secret, err = secrets.Get(ctx, k.secret.Name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret %s with the keys of the conversions: %w", k.secret, err)
	}
	for _, entry := range slices.Sorted(maps.Keys(secret.Data)) {
		if len(secret.Data[entry]) < convert.KeyLength {
			return nil, fmt.Errorf("the key %q in the Secret %s has %d bytes; give it %d random ones or more, or remove it",
				entry, k.secret, len(secret.Data[entry]), convert.KeyLength)
		}
		all = append(all, secret.Data[entry])
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the Secret %s holds no key; restore it from a backup, or delete it to have a new one made", k.secret)
	}
	return all, nil
}
