package hosts

// This file reserves a host with an object whose name follows from the host, because only the creation of an object is
// a decision that all API servers make together.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"code.cloudfoundry.org/eirinix"
)

// settled is the age at which a reservation counts only if its Ingress exists. It is longer than the time from a
// decision until all replicas see its result: a request's timeout, Read.MaxStale, and a difference of clocks.
const settled = 2 * time.Minute

// Reserved is Unique for requests at the same time: it also reserves each host, with a ConfigMap in that namespace. A
// request that is refused later leaves a reservation behind, which blocks the host for other Ingresses until it is
// settled.
func Reserved(namespace string) eirinix.Validation[*networkingv1.Ingress] {
	settings := Unique().Settings
	settings.SideEffects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	return checking(settings, func(ctx context.Context, c *eirinix.Call, ingress *networkingv1.Ingress, hosts []string) error {
		if err := unique(ctx, c, ingress, hosts); err != nil || c.DryRun != nil && *c.DryRun {
			return err
		}
		kube, err := c.Manager.GetKubeClient()
		if err != nil {
			return err
		}
		for _, host := range hosts {
			if err := reserve(ctx, c.Reader(), kube.ConfigMaps(namespace), host, ingress.Namespace, ingress.Name); err != nil {
				return err
			}
		}
		return nil
	})
}

// reserve returns nil if the host is reserved for the Ingress.
func reserve(ctx context.Context, r client.Reader, reservations corev1client.ConfigMapInterface, host, namespace, name string) error {
	digest := sha256.Sum256([]byte(host))
	id := "host-" + hex.EncodeToString(digest[:16])
	data := map[string]string{"host": host, "namespace": namespace, "name": name, "since": time.Now().UTC().Format(time.RFC3339)}
	_, err := reservations.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: id}, Data: data}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing, err := reservations.Get(ctx, id, metav1.GetOptions{})
	if err != nil {
		return err
	}
	held := existing.Data
	since, _ := time.Parse(time.RFC3339, held["since"]) // what does not parse is old
	age, ours := time.Since(since), held["namespace"] == namespace && held["name"] == name
	switch {
	case ours && age < settled/2: // long enough for this request
		return nil
	case !ours && age < settled:
		return eirinix.Deny("host %s is reserved for Ingress %s/%s; if that is not created, try again in %s",
			host, held["namespace"], held["name"], settled)
	case !ours:
		var holder networkingv1.Ingress
		err := r.Get(ctx, client.ObjectKey{Namespace: held["namespace"], Name: held["name"]}, &holder)
		if err == nil && slices.Contains(hostsOf(&holder), host) {
			return eirinix.Deny("host %s belongs to Ingress %s/%s", host, held["namespace"], held["name"])
		} else if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	existing.Data = data
	_, err = reservations.Update(ctx, existing, metav1.UpdateOptions{}) // of two that find it free, one gets a conflict
	return err
}
