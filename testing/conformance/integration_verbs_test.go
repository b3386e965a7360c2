package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// play plays one verb on one resource, and returns its failure.
func (e *everyResource) play(ctx context.Context, r schema.GroupVersionResource, verb string) error {
	do := map[string]func(context.Context, schema.GroupVersionResource) error{
		"create": e.create, "update": e.update, "patch": e.patch, "delete": e.remove, "deletecollection": e.removeCollection,
	}[verb]
	if parent, sub, ok := strings.Cut(r.Resource, "/"); ok {
		do = map[string]func(context.Context, schema.GroupVersionResource) error{"update": e.updateSub, "patch": e.patchSub}[verb]
		switch {
		case sub == "proxy":
			do = func(ctx context.Context, r schema.GroupVersionResource) error {
				return e.connect(ctx, r, proxyMethods[verb]...)
			}
		case parent == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, sub):
			do = func(ctx context.Context, r schema.GroupVersionResource) error {
				return e.connect(ctx, r, "GET", "POST")
			}
		case do == nil:
			do = e.createSub
		}
	}
	if r.Resource == "namespaces" && verb == "delete" {
		do = e.removeNamespace
	}
	if r.Resource == "bindings" {
		do = e.bind
	}
	return do(ctx, r)
}

var proxyMethods = map[string][]string{"create": {"POST", "GET", "HEAD", "OPTIONS"}, "update": {"PUT"}, "patch": {"PATCH"}, "delete": {"DELETE"}, "get": {"GET"}}

// expectation of a request for an object; the caller names its parts.
func (e *everyResource) expect(r schema.GroupVersionResource, operation, name string, object, old bool, options string) {
	resource, namespace := e.resources[r], ""
	switch {
	case resource.Namespaced:
		namespace = e.namespace
	case r.Group == "" && (r.Resource == "namespaces" || strings.HasPrefix(r.Resource, "namespaces/")):
		namespace = name // a Namespace is in itself
	}
	e.seen.expect(expected{
		resource: r, operation: operation, namespace: namespace, name: name, object: object, old: old, options: options,
		// Webhooks and policies cannot keep themselves from being mended. Reviews of callers are exempt since a release.
		exempt: r.Group == "admissionregistration.k8s.io" || virtual(r.Group) && has(virtualRelease),
	})
}

func (e *everyResource) api(r schema.GroupVersionResource) dynamic.ResourceInterface {
	r.Resource, _, _ = strings.Cut(r.Resource, "/")
	if e.resources[r].Namespaced {
		return e.client.Resource(r).Namespace(e.namespace)
	}
	return e.client.Resource(r)
}

func (e *everyResource) stub(r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	u, ok := stubOf(r, e.resources[r].Kind, e.namespace)
	if !ok {
		return nil, fmt.Errorf("there is no stub; add one")
	}
	return u, nil
}

// object returns the stub's object, which is made if it is not there.
func (e *everyResource) object(ctx context.Context, r schema.GroupVersionResource) (*unstructured.Unstructured, error) {
	r.Resource, _, _ = strings.Cut(r.Resource, "/")
	stub, err := e.stub(r)
	if err != nil {
		return nil, err
	}
	u, err := e.api(r).Get(ctx, stub.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return e.api(r).Create(ctx, stub, metav1.CreateOptions{})
	}
	return u, err
}

func (e *everyResource) create(ctx context.Context, r schema.GroupVersionResource) error {
	stub, err := e.stub(r)
	if err != nil {
		return err
	}
	if slices.Contains(e.resources[r].Verbs, "delete") { // made by another version of the resource
		if _, err := e.api(r).Get(ctx, stub.GetName(), metav1.GetOptions{}); err == nil {
			if err := e.api(r).Delete(ctx, stub.GetName(), atOnce); err != nil {
				return err
			}
			e.gone(ctx, r, stub.GetName())
		}
	}
	e.expect(r, "CREATE", stub.GetName(), true, false, "CreateOptions")
	if _, err := e.api(r).Create(ctx, stub, metav1.CreateOptions{}); err != nil {
		return err
	}
	return e.seen.verdict()
}

func (e *everyResource) update(ctx context.Context, r schema.GroupVersionResource) error {
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := e.object(ctx, r)
		if err != nil {
			return err
		}
		u.SetAnnotations(map[string]string{"update": "yes"})
		e.expect(r, "UPDATE", u.GetName(), true, true, "UpdateOptions")
		_, err = e.api(r).Update(ctx, u, metav1.UpdateOptions{})
		return err
	}); err != nil {
		return err
	}
	return e.seen.verdict()
}

func (e *everyResource) patch(ctx context.Context, r schema.GroupVersionResource) error {
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	e.expect(r, "UPDATE", u.GetName(), true, true, "UpdateOptions")
	if _, err := e.api(r).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"patch":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	return e.seen.verdict()
}

var atOnce = metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), PropagationPolicy: new(metav1.DeletePropagationBackground)}

const stubFinalizer = "example.com/stub"

// remove deletes an object that goes at once, and then one that a finalizer holds, which is an update.
func (e *everyResource) remove(ctx context.Context, r schema.GroupVersionResource) error {
	for _, finalizer := range []bool{false, true} {
		u, err := e.object(ctx, r)
		if err != nil {
			return err
		}
		if finalizer {
			if _, err := e.api(r).Patch(ctx, u.GetName(), types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%q]}}`, stubFinalizer), metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		e.expect(r, "DELETE", u.GetName(), false, true, "DeleteOptions")
		if err := e.api(r).Delete(ctx, u.GetName(), atOnce); err != nil {
			return err
		}
		if err := e.seen.verdict(); err != nil {
			return fmt.Errorf("finalizer %t: %w", finalizer, err)
		}
		if finalizer {
			held, err := e.api(r).Get(ctx, u.GetName(), metav1.GetOptions{})
			if err != nil || held.GetDeletionTimestamp() == nil || !slices.Contains(held.GetFinalizers(), stubFinalizer) {
				return fmt.Errorf("the finalizer did not hold it: %w", err)
			}
		}
		e.gone(ctx, r, u.GetName())
	}
	return nil
}

// gone returns when the object is gone. Finalizers are taken from it, but for the one that the API server itself
// takes from definitions, because no other controller runs here to do it.
func (e *everyResource) gone(ctx context.Context, r schema.GroupVersionResource, name string) {
	Eventually(func() error {
		u, err := e.api(r).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if finalizers := u.GetFinalizers(); len(finalizers) > 0 {
			own := slices.DeleteFunc(finalizers, func(f string) bool { return !strings.HasPrefix(f, "customresourcecleanup") })
			list := []string{}
			for _, f := range own {
				list = append(list, fmt.Sprintf("%q", f))
			}
			_, _ = e.api(r).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":[%s]}}`, strings.Join(list, ",")), metav1.PatchOptions{})
		}
		return fmt.Errorf("%s %s is still there", r, name)
	}).WithContext(ctx).Should(Satisfy(apierrors.IsNotFound))
}

func (e *everyResource) removeCollection(ctx context.Context, r schema.GroupVersionResource) error {
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	if _, err := e.api(r).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"collected":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	e.expect(r, "DELETE", "", false, true, "DeleteOptions")
	if err := e.api(r).DeleteCollection(ctx, atOnce, metav1.ListOptions{LabelSelector: "collected=yes"}); err != nil {
		return err
	}
	if err := e.seen.verdict(); err != nil {
		return err
	}
	e.gone(ctx, r, u.GetName())
	return nil
}

// removeNamespace deletes a Namespace, which only begins its end, and then finalizes it by hand.
func (e *everyResource) removeNamespace(ctx context.Context, r schema.GroupVersionResource) error {
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	e.expect(r, "DELETE", u.GetName(), false, true, "DeleteOptions")
	if err := e.api(r).Delete(ctx, u.GetName(), atOnce); err != nil {
		return err
	}
	if err := e.seen.verdict(); err != nil {
		return err
	}
	if u, err = e.api(r).Get(ctx, u.GetName(), metav1.GetOptions{}); err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "spec", "finalizers")
	e.expect(schema.GroupVersionResource{Version: "v1", Resource: "namespaces/finalize"}, "UPDATE", u.GetName(), true, true, "UpdateOptions")
	if _, err := e.api(r).Update(ctx, u, metav1.UpdateOptions{}, "finalize"); err != nil {
		return err
	}
	if err := e.seen.verdict(); err != nil {
		return err
	}
	e.gone(ctx, r, u.GetName())
	return nil
}
