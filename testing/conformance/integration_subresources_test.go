package conformance_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
)

func (e *everyResource) updateSub(ctx context.Context, r schema.GroupVersionResource) error {
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := e.object(ctx, r)
		if err != nil {
			return err
		}
		_, sub, _ := strings.Cut(r.Resource, "/")
		sent := u
		if slices.Contains(e.resources[r].Verbs, "get") { // a scale is of another kind than the object that it scales
			if sent, err = e.api(r).Get(ctx, u.GetName(), metav1.GetOptions{}, sub); err != nil {
				return err
			}
		}
		sent.SetAnnotations(map[string]string{"subresource": "updated"})
		e.expect(r, "UPDATE", u.GetName(), true, true, "UpdateOptions")
		_, err = e.api(r).Update(ctx, sent, metav1.UpdateOptions{}, sub)
		return err
	}); err != nil {
		return err
	}
	return e.seen.verdict()
}

func (e *everyResource) patchSub(ctx context.Context, r schema.GroupVersionResource) error {
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	_, sub, _ := strings.Cut(r.Resource, "/")
	e.expect(r, "UPDATE", u.GetName(), true, true, "UpdateOptions")
	if _, err := e.api(r).Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"metadata":{"annotations":{"subresource":"patched"}}}`), metav1.PatchOptions{}, sub); err != nil {
		return err
	}
	return e.seen.verdict()
}

// connect asks for a connection by each method. It need not come about: admission is before.
func (e *everyResource) connect(ctx context.Context, r schema.GroupVersionResource, methods ...string) error {
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	parent, sub, _ := strings.Cut(r.Resource, "/")
	for _, method := range methods {
		e.expect(r, "CONNECT", u.GetName(), true, false, "")
		request := e.clients.CoreV1().RESTClient().Verb(method).Resource(parent).Name(u.GetName()).SubResource(sub)
		if e.resources[r].Namespaced {
			request = request.Namespace(e.namespace)
		}
		_ = request.Do(ctx).Error()
		if err := e.seen.verdict(); err != nil {
			return fmt.Errorf("%s: %w", method, err)
		}
	}
	return nil
}

// createSub creates the object that a subresource takes. There are few such subresources, each with a kind of its own.
func (e *everyResource) createSub(ctx context.Context, r schema.GroupVersionResource) error {
	parent, sub, _ := strings.Cut(r.Resource, "/")
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	body := map[string]func(name string) runtime.Object{
		"pods/binding": func(name string) runtime.Object {
			return &corev1.Binding{ObjectMeta: meta(name), Target: corev1.ObjectReference{Kind: "Node", Name: "nowhere"}}
		},
		"pods/eviction": func(name string) runtime.Object {
			return &policyv1.Eviction{ObjectMeta: meta(name), DeleteOptions: &atOnce}
		},
		"serviceaccounts/token": func(name string) runtime.Object {
			return &authenticationv1.TokenRequest{ObjectMeta: meta(name), Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"api"}}}
		},
	}[r.Resource]
	if body == nil {
		return fmt.Errorf("there is no stub for it; add one")
	}
	u, err := e.object(ctx, r)
	if err != nil {
		return err
	}
	e.expect(r, "CREATE", u.GetName(), true, false, "CreateOptions")
	if err := e.clients.CoreV1().RESTClient().Post().Namespace(e.namespace).Resource(parent).Name(u.GetName()).SubResource(sub).
		Body(body(u.GetName())).Do(ctx).Error(); err != nil {
		return err
	}
	if err := e.seen.verdict(); err != nil || parent != "pods" {
		return err
	}
	return e.unbind(ctx, u.GetName()) // a pod that is bound or evicted is of no use to the next verb
}

// bind binds a pod as a scheduler of old did.
func (e *everyResource) bind(ctx context.Context, r schema.GroupVersionResource) error {
	u, err := e.object(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if err != nil {
		return err
	}
	e.expect(r, "CREATE", u.GetName(), true, false, "CreateOptions")
	if err := e.clients.CoreV1().RESTClient().Post().Namespace(e.namespace).Resource("bindings").Body(&corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: u.GetName()}, Target: corev1.ObjectReference{Kind: "Node", Name: "nowhere"},
	}).Do(ctx).Error(); err != nil {
		return err
	}
	if err := e.seen.verdict(); err != nil {
		return err
	}
	return e.unbind(ctx, u.GetName())
}

func (e *everyResource) unbind(ctx context.Context, pod string) error {
	err := e.clients.CoreV1().Pods(e.namespace).Delete(ctx, pod, atOnce)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
