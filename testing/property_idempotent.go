package eirinixtest

// This file implements CheckIdempotent, which sends a handler's own result to it again.

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const idempotent = "idempotent"

// foreignAnnotation is an annotation that simulates a change by another webhook.
const foreignAnnotation = "eirinixtest.example/changed-by-another-webhook"

func (h *Harness) idempotent(object any, options []RequestOption) error {
	defer h.log.mute()()
	requests, err := h.requests(object, options)
	if err != nil {
		return err
	}
	for _, r := range requests {
		if r.Object == nil || r.Operation == admissionv1.Connect {
			continue // it has no object to change
		}
		if err := h.idempotentFor(r); err != nil {
			return err
		}
	}
	return nil
}

func (h *Harness) idempotentFor(r Request) error {
	if err := h.leavesOld(r); err != nil {
		return err
	}
	first, err := h.admitted(idempotent, r)
	if err != nil {
		return err
	}
	again := func(d apiserver.Document) Request {
		r := r
		r.Object = d
		return r
	}
	if err := h.stable(again(first.after()), "run a second time on its own result, it changed that again"); err != nil {
		return err
	}
	if err := h.stable(again(touched(first.after())), "called again after another webhook had added an annotation (reinvocation), it changed its own result again"); err != nil {
		return err
	}
	for _, inFront := range []bool{true, false} {
		if r.Operation != admissionv1.Create {
			break // an update cannot add containers, to a Pod for example
		}
		injected := first.after().With(func(u *unstructured.Unstructured) { injectContainer(u.Object, inFront) })
		if sameJSON(injected.Raw, first.after().Raw) {
			break // the object has no containers
		}
		second, err := h.send(again(injected))
		if err != nil {
			return fmt.Errorf("eirinixtest: %w", err)
		}
		if !second.Allowed {
			break // the container is invented, so its refusal proves nothing about the object
		}
		if err := h.stable(again(second.after()), "called again after another webhook had added a container (reinvocation), it does not come to rest"); err != nil {
			return err
		}
	}
	if r.Operation == admissionv1.Create && r.Subresource == "" {
		update := again(first.after())
		update.Operation, update.OldObject = admissionv1.Update, touched(first.after())
		return h.stable(update, "an update of an annotation changed its own result again; a client that applies the object repeatedly (a controller, kubectl apply) never finishes")
	}
	return nil
}

// touched returns an object with one annotation more.
func touched(d apiserver.Document) apiserver.Document {
	return d.With(func(u *unstructured.Unstructured) {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[foreignAnnotation] = "true"
		u.SetAnnotations(annotations)
	})
}

// leavesOld sends an update of an object from before the steps were registered. If the handler's patch makes the API
// server refuse the update, such objects can no longer be edited.
func (h *Harness) leavesOld(r Request) error {
	if r.Operation != admissionv1.Update || r.Subresource != "" {
		return nil
	}
	before, err := h.server.Read(r.Object)
	if err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}
	r.Object, r.OldObject = before, touched(before)
	result, err := h.send(r)
	if err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}
	if result.Allowed || result.Denial != nil || !apierrors.IsInvalid(result.Err) || len(result.Patch) == 0 {
		return nil
	}
	return &violation{
		property: idempotent, proof: result.Err.Error() + "\n" + patchText(result.Patch),
		what:   fmt.Sprintf("an update of an object that it has not changed when that was created is refused by the API server, and with it the user's own edit (%s)", stepsOf(result)),
		remedy: "change it on CREATE alone (Settings.Operations), or on UPDATE only what may change then: what a Pod or a Job is made of may not.",
	}
}

// stable sends an object that the handler must leave unchanged.
func (h *Harness) stable(r Request, otherwise string) error {
	result, err := h.admitted(idempotent, r)
	if err != nil {
		return err
	}
	if sameJSON(result.before().Raw, result.after().Raw) {
		return nil
	}
	proof := result.Diff()
	if proof == "" {
		proof = patchText(result.Patch)
	}
	return &violation{
		property: idempotent, what: fmt.Sprintf("%s (%s)", otherwise, stepsOf(result)), proof: proof,
		remedy: "look whether what you are about to add is there already, by its name and not by its position, and set values instead of adding to them: the API server may call a webhook twice for one object, and sends it again with every update.",
	}
}

// injectContainer adds a container to every list of containers in the tree.
func injectContainer(tree map[string]any, inFront bool) {
	for key, value := range tree {
		switch value := value.(type) {
		case map[string]any:
			injectContainer(value, inFront)
		case []any:
			if key != "containers" {
				continue
			}
			foreign := any(map[string]any{"name": "injected-by-another-webhook", "image": imageIn(value)})
			if inFront {
				tree[key] = append([]any{foreign}, value...)
			} else {
				tree[key] = append(value, foreign)
			}
		}
	}
}

// imageIn returns an image that a neighbouring container already uses, so that no policy refuses it.
func imageIn(containers []any) any {
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok && c["image"] != nil {
			return c["image"]
		}
	}
	return "example.org/sidecar:1"
}

// stepsOf returns the names of the steps that ran.
func stepsOf(r *Result) string {
	names, seen := "", map[string]bool{}
	for _, s := range r.Steps {
		if seen[s.Step] {
			continue
		}
		seen[s.Step] = true
		if names != "" {
			names += ", "
		}
		names += s.Step
	}
	if len(seen) == 1 {
		return "step " + names
	}
	return "steps " + names
}
